// millrace report: writes tables and plots from the records of a run, a profile or a sweep.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "study/records/run_directory.h"
#include "study/report/report_html.h"
#include "study/report/report_plots.h"
#include "study/report/report_text.h"
#include "tools/commands/commands.h"
#include "tools/commands/report_input.h"
#include "tools/terminal/console.h"
#include "tools/terminal/output.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::vector<std::string> paths;
  std::string html;
  bool markdown = false;
  bool csv = false;
  std::string plots;

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
  const study::Report report = make_report(arguments.paths);
  const bool others =
      arguments.markdown || arguments.csv || !arguments.plots.empty() || verbosity().json;
  const auto tell = [&](const std::string& text) {
    if (arguments.markdown || verbosity().json)
      say(text);
    else
      print("{}\n", text);
  };
  if (!arguments.plots.empty()) {
    study::write_plots(report.figures, arguments.plots);
    tell(fmt::format("{}: {} figures as SVG and PNG, with their gnuplot scripts and data",
                     arguments.plots, report.figures.size()));
  }
  if (!arguments.html.empty() || !others) {
    const fs::path file =
        arguments.html.empty() ? arguments.folder() / "report.html" : fs::path(arguments.html);
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

}  // namespace

void add_report(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand("report", "make tables and plots from the records of runs");
  auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("path", arguments->paths,
                   "directory of a run, a profile or a sweep; several runs are compared")
      ->required();
  command->add_option("--html", arguments->html,
                      "write the page to this file (without options: DIR/report.html)");
  command->add_flag("--md", arguments->markdown, "print Markdown");
  command->add_flag("--csv", arguments->csv, "write each figure and table to DIR/report/NAME.csv");
  command
      ->add_option("--plots", arguments->plots,
                   "draw each figure for a paper with gnuplot: DIR/NAME.svg and DIR/NAME.png")
      ->type_name("DIR");
  add_common(*command);
  command->footer(
      "Example:\n  millrace report runs/first                  writes runs/first/report.html\n"
      "  millrace report runs/first runs/second --md compares two runs");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart&) { return report(*arguments); };
  });
}

}  // namespace millrace::tools
