// Follows a run by its lock and its records.
#include "tools/commands/report_live.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "millrace/error.h"
#include "study/records/run_directory.h"
#include "study/records/run_lock.h"
#include "study/report/report_html.h"
#include "study/report/run_report.h"
#include "tools/commands/report_input.h"
#include "tools/terminal/console.h"
#include "tools/terminal/interrupt.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

/// Rows of steps.csv read for one page, a fraction of a second's work. The page of a run that is
/// further ahead catches up.
constexpr std::uint64_t kRowsPerPage = 200'000;

bool goes_on(const fs::path& run) {
  std::error_code ignored;
  return !fs::exists(run / "summary.json", ignored) && study::RunLock::is_held(run);
}

/// Returns what the writer of a run has put into its lock.
std::string writer_of(const fs::path& run) {
  std::ifstream in(run / study::RunLock::kFile);
  std::string line;
  std::getline(in, line);
  return line;
}

class LivePage {
 public:
  LivePage(fs::path run, const fs::path& predictions, fs::path file, double interval_s)
      : run_(std::move(run)), file_(std::move(file)), interval_s_(interval_s) {
    add_fixed_parts(run_, predictions, fixed_);
  }

  /// Writes the page. `over`: nothing is added to the records any more. Returns whether this page
  /// is the last one.
  bool write(bool over) {
    study::Report report = read();
    const bool last = over && reader_->at_end();
    if (!reader_->at_end())
      report.notes.insert(report.notes.begin(), "the page has not caught up with the run yet");
    if (!last)
      say_when(report, fmt::format("the page loads itself again every {:g} s", interval_s_));
    put(std::move(report), last ? 0 : interval_s_);
    return last;
  }
  /// Writes a page that does not load itself again, of a run that goes on.
  void leave() {
    study::Report report = read();
    say_when(report, "nothing updates the page any more");
    put(std::move(report), 0);
  }

 private:
  /// Reads from the start where another process continues the run, because that removes records
  /// and then writes config.toml.
  study::Report read() {
    std::error_code missing;
    const std::string writer =
        fmt::format("{} {}", writer_of(run_),
                    fs::last_write_time(run_ / "config.toml", missing).time_since_epoch().count());
    if (reader_ == nullptr || writer != writer_) {
      writer_ = writer;
      reader_ = std::make_unique<study::RunReader>(run_);
    }
    return reader_->report(kRowsPerPage);
  }
  static void say_when(study::Report& report, const std::string& what) {
    report.notes.insert(
        report.notes.begin(),
        fmt::format("written at {:%H:%M:%S}; {}", fmt::localtime(std::time(nullptr)), what));
  }
  void put(study::Report report, double reload_s) const {
    report.tables.insert(report.tables.end(), fixed_.tables.begin(), fixed_.tables.end());
    report.images.insert(report.images.end(), fixed_.images.begin(), fixed_.images.end());
    report.notes.insert(report.notes.end(), fixed_.notes.begin(), fixed_.notes.end());
    study::write_file(file_, study::to_html(report, reload_s));
  }

  fs::path run_;
  fs::path file_;
  double interval_s_;
  study::Report fixed_;
  std::string writer_;
  std::unique_ptr<study::RunReader> reader_;
};

/// Waits until the next page is due, the run has ended or a signal has come.
void pause(const fs::path& run, double interval_s) {
  using Clock = std::chrono::steady_clock;
  constexpr int kNapsPerLook = 5;
  const auto due = Clock::now() + std::chrono::duration<double>(interval_s);
  for (int nap = 1; Clock::now() < due && !interrupted(); ++nap) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (nap % kNapsPerLook == 0 && !goes_on(run)) return;
  }
}

}  // namespace

void follow_run(const fs::path& run, const fs::path& predictions, const fs::path& file,
                double interval_s) {
  LivePage page(run, predictions, file, interval_s);
  say(fmt::format(
      "{}: written every {:g} s while the run goes on; any browser opens it, and Ctrl-C "
      "ends",
      file.string(), interval_s));
  // Whether the run goes on is asked before its records are read, so that the last page has all.
  for (bool over = !goes_on(run); !page.write(over); over = !goes_on(run)) {
    if (!over) pause(run, interval_s);
    if (!interrupted()) continue;
    page.leave();
    throw Error(
        Exit::interrupted, fmt::format("interrupted: {} stays as it is", file.string()),
        fmt::format("follow the run again: millrace report --live {}", shell_word(run.string())));
  }
}

}  // namespace millrace::tools
