// millrace report: writes tables and plots from the records of a run, a profile or a sweep.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "study/report/report_html.h"
#include "study/report/report_text.h"
#include "study/report/run_report.h"
#include "tools/commands/commands.h"
#include "tools/commands/report_input.h"
#include "tools/commands/report_live.h"
#include "tools/terminal/console.h"
#include "tools/terminal/output.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::vector<std::string> paths;
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
    study::write_file(folder / (figure.id + ".csv"), study::to_csv(figure));
  for (const study::ReportTable& table : report.tables)
    study::write_file(folder / (table.id + ".csv"), study::to_csv(table));
  return report.figures.size() + report.tables.size();
}

Exit report(const ReportArguments& arguments) {
  if (arguments.markdown && verbosity().json)
    throw UsageError("--md and --json both write to stdout", "give one of them at a time");
  const study::Report report = make_report(arguments.paths, arguments.predictions);
  const bool others = arguments.markdown || arguments.csv || verbosity().json;
  const auto tell = [&](const std::string& text) {
    if (arguments.markdown || verbosity().json)
      say(text);
    else
      print("{}\n", text);
  };
  if (!arguments.html.empty() || !others) {
    const fs::path file = arguments.page();
    make_folder(file.parent_path());
    study::write_file(file, study::to_html(report));
    if (!others && !report.verdict.empty()) print("{}\n", report.verdict);
    tell(fmt::format("{}: {} figures, {} tables, {} pictures; any browser opens it", file.string(),
                     report.figures.size(), report.tables.size(), report.images.size()));
  }
  if (arguments.csv) {
    const fs::path folder = arguments.folder() / "report";
    tell(fmt::format("{}: {} CSV files", folder.string(), write_csv(report, folder)));
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
  follow_run(run, arguments.predictions, file, interval_s);
  print("{}: complete; the run: {}\n", file.string(),
        study::state_of(study::read_json(run / "summary.json")));
  return Exit::done;
}

}  // namespace

void add_report(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand("report", "make tables and plots from the records of runs");
  auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("path", arguments->paths,
                   "directory of a run, a profile or a sweep, or a folder of them; several "
                   "runs are compared")
      ->required();
  command->add_option("--html", arguments->html,
                      "write the page to this file (without options: DIR/report.html)");
  command->add_flag("--md", arguments->markdown, "print Markdown");
  command->add_flag("--csv", arguments->csv, "write each figure and table to DIR/report/NAME.csv");
  command
      ->add_option("--predictions", arguments->predictions,
                   "show the most confidently wrong images of this file of `millrace eval "
                   "--predictions` (default: RUN/predictions.csv, if it is there)")
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
      return arguments->live ? report_live(*arguments) : report(*arguments);
    };
  });
}

}  // namespace millrace::tools
