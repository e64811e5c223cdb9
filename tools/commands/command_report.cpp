// millrace report: writes tables and plots from the records of a run, a profile or a sweep, once
// or while a run goes on.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "base/number_text.h"
#include "base/record_file.h"
#include "millrace/error.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "study/records/run_links.h"
#include "study/report/report.h"
#include "study/report/reports.h"
#include "study/report/run_facts.h"
#include "tools/commands/commands.h"
#include "tools/commands/report_input.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {

// Follows a run by its lock and its records.

namespace {

namespace fs = std::filesystem;

/// Rows of steps.csv read for one page, a fraction of a second's work. The page of a run that is
/// further ahead catches up.
constexpr std::uint64_t kRowsPerPage = 200'000;

bool goes_on(const fs::path& run) {
  return study::RunLock::is_held(run) &&
         !study::is_complete(study::read_summary(run / "summary.json"));
}

/// Returns what the writer of a run has put into its lock.
std::string writer_of(const fs::path& run) {
  const fs::path file = run / study::RunLock::kFile;
  std::ifstream in = base::open_record(file);
  std::string line;
  base::read_line(in, line, file);
  return line;
}

class LivePage {
 public:
  LivePage(fs::path run, const fs::path& predictions, const std::vector<std::string>& words,
           fs::path file, double interval_s)
      : run_(std::move(run)), file_(std::move(file)), interval_s_(interval_s) {
    add_fixed_parts(run_, predictions, words, fixed_);
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
    study::write_derived_file(file_, study::to_html(report, reload_s));
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

void follow_run(const fs::path& run, const fs::path& predictions,
                const std::vector<std::string>& words, const fs::path& file, double interval_s) {
  LivePage page(run, predictions, words, file, interval_s);
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

namespace {

struct ReportArguments {
  std::vector<std::string> paths;
  std::vector<std::string> words;  ///< data.path=...
  std::string html;
  std::string predictions;
  bool markdown = false;
  bool csv = false;
  bool live = false;
  std::optional<double> interval_s;

  /// Returns the page's file.
  fs::path page() const { return html.empty() ? folder() / "report.html" : fs::path(html); }
  /// Returns the folder for files without a given name: the run's directory, or the current one for
  /// several runs.
  fs::path folder() const { return paths.size() == 1 ? fs::path(paths[0]) : fs::path("."); }
};

void make_folder(const fs::path& folder) {
  std::error_code error;
  if (folder.empty() || fs::create_directories(folder, error) || !error) return;
  throw RunError(fmt::format("cannot create {}: {}", folder.string(), error.message()),
                 "choose another place: --html FILE");
}

/// Writes one file per figure and table.
std::size_t write_csv(const study::Report& report, const fs::path& folder) {
  make_folder(folder);
  for (const study::Figure& figure : report.figures)
    study::write_derived_file(folder / (figure.id + ".csv"), study::to_csv(figure));
  for (const study::ReportTable& table : report.tables)
    study::write_derived_file(folder / (table.id + ".csv"), study::to_csv(table));
  return report.figures.size() + report.tables.size();
}

Exit report(const ReportArguments& arguments) {
  if (arguments.markdown && verbosity().json)
    throw UsageError("--md and --json both write to stdout", "give one of them at a time");
  const study::Report report = make_report(arguments.paths, arguments.predictions, arguments.words);
  const bool others = arguments.markdown || arguments.csv || verbosity().json;
  const auto tell = [&](const std::string& text) {
    if (arguments.markdown || verbosity().json)
      say(text);
    else
      print_unless_quiet("{}\n", text);
  };
  if (!arguments.html.empty() || !others) {
    const fs::path file = arguments.page();
    make_folder(file.parent_path());
    study::write_derived_file(file, study::to_html(report));
    if (!others && !report.verdict.empty()) print_unless_quiet("{}\n", report.verdict);
    tell(fmt::format("{}: {}, {}, {}; any browser opens it", file.string(),
                     base::counted(report.figures.size(), "figure"),
                     base::counted(report.tables.size(), "table"),
                     base::counted(report.images.size(), "picture")));
  }
  if (arguments.csv) {
    const fs::path folder = arguments.folder() / "report";
    study::refuse_link_outside(folder, arguments.folder());
    tell(fmt::format("{}: {}", folder.string(),
                     base::counted(write_csv(report, folder), "CSV file")));
  }
  if (arguments.markdown) print("{}", study::to_markdown(report));
  if (verbosity().json) {
    nlohmann::ordered_json json{{"command", "report"}};
    json.update(study::to_json(report));
    print("{}\n", study::to_text(json, 2));
  }
  return Exit::done;
}

/// Rewrites the page of a run while the run goes on.
Exit report_live(const ReportArguments& arguments) {
  constexpr double kShortest = 1, kLongest = 3600, kUsual = 5;
  if (arguments.markdown || arguments.csv || verbosity().json)
    throw UsageError("--live writes a page; --md, --csv and --json belong to a single report",
                     "leave them out, or leave out --live");
  const double interval_s = arguments.interval_s.value_or(kUsual);
  if (!(interval_s >= kShortest && interval_s <= kLongest))
    throw UsageError(fmt::format("--interval {:g}: out of range", interval_s),
                     fmt::format("give {:g} to {:g} seconds", kShortest, kLongest));
  const fs::path run = the_run_in(arguments.paths);
  const fs::path file = arguments.page();
  make_folder(file.parent_path());
  follow_run(run, arguments.predictions, arguments.words, file, interval_s);
  print_unless_quiet("{}: complete; the run: {}\n", file.string(),
                     study::state_of(study::read_summary(run / "summary.json")));
  return Exit::done;
}

/// Separates data.path=... from the paths of runs.
void take_words(ReportArguments& arguments) {
  const auto runs_end = std::stable_partition(
      arguments.paths.begin(), arguments.paths.end(),
      [](const std::string& word) { return !word.starts_with("data.path="); });
  arguments.words.assign(runs_end, arguments.paths.end());
  arguments.paths.erase(runs_end, arguments.paths.end());
  if (arguments.paths.empty())
    throw UsageError("report: which run?", "name its directory: millrace report runs/NAME");
}

}  // namespace

void add_report(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand("report", "make tables and plots from the records of runs");
  auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("path", arguments->paths,
                   "directory of a run, a profile or a sweep, or a folder of them; several "
                   "runs are compared. data.path=DIR shows samples of a run that another user made")
      ->required();
  command->add_option("--html", arguments->html,
                      "write the page to this file (without options: DIR/report.html)");
  command->add_flag("--md", arguments->markdown, "print Markdown");
  command->add_flag("--csv", arguments->csv, "write each figure and table to DIR/report/NAME.csv");
  command
      ->add_option("--predictions", arguments->predictions,
                   "show the most confidently wrong images of this file of `millrace eval "
                   "--predictions` (default: RUN/predictions.csv, if it exists)")
      ->type_name("FILE.csv");
  command->add_flag("--live", arguments->live,
                    "rewrite the page of a run until the run ends or Ctrl-C; the page loads itself "
                    "again");
  command
      ->add_option("--interval", arguments->interval_s,
                   "--live: seconds between two pages, 1 to 3600 (default 5)")
      ->type_name("SECONDS");
  // Hidden: tells users of earlier versions what replaces it.
  command
      ->add_option_function<std::string>(
          "--plots",
          [](const std::string&) {
            throw UsageError("report: --plots is gone; millrace no longer draws with gnuplot",
                             "write the numbers with --csv and draw them with "
                             "docs/examples/plot.py (docs/how-to/reports.md)");
          })
      ->expected(0, 1)
      ->group("");
  add_common(*command);
  command->footer(
      "Example:\n  millrace report runs/first                  writes runs/first/report.html\n"
      "  millrace report --live runs/first           follows a run that goes on\n"
      "  millrace report runs/first runs/second --md compares two runs\n"
      "  millrace report runs                        writes runs/report.html, a page on all of "
      "them");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart&) {
      if (arguments->interval_s && !arguments->live)
        throw UsageError("--interval belongs to --live", "add --live, or leave it out");
      take_words(*arguments);
      return arguments->live ? report_live(*arguments) : report(*arguments);
    };
  });
}

}  // namespace millrace::tools
