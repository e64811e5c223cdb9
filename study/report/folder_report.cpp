// Lists the runs of a folder, and overlays their curves.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "millrace/error.h"
#include "study/records/summary.h"
#include "study/report/comparison.h"
#include "study/report/figures.h"
#include "study/report/reports.h"
#include "study/report/run_columns.h"
#include "study/report/run_facts.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

/// Reads the folder's run; an empty report if it is damaged, which the notes then say.
Report report_or_note(const fs::path& run, Report& folder) {
  try {
    return run_report(run);
  } catch (const DataError& error) {
    folder.notes.push_back(
        fmt::format("{} is left out: {}", run.filename().string(), error.what()));
    return {};
  }
}

const char* kind_of(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path / "design.json", error)) return "sweep";
  return fs::exists(path / "predictions.json", error) ? "profile" : "run";
}

/// Merges neighbouring points of a long curve into at most `most`: a page on a hundred runs stays
/// small.
void thin(Series& series, std::size_t most) {
  if (series.y.size() <= most) return;
  const auto means = [&](const std::vector<double>& values) {
    std::vector<double> reduced;
    for (const Group& group : groups_of(values.size(), most)) {
      double sum = 0;
      for (std::size_t i = group.begin; i < group.end; ++i) sum += values[i];
      reduced.push_back(sum / static_cast<double>(group.end - group.begin));
    }
    return reduced;
  };
  series.x = means(series.x);
  series.y = means(series.y);
}

/// One run, profile or sweep of the folder.
struct FolderRun {
  std::string name, kind;
  std::string recipe{};
  Summary summary{};
  ConfigValues config{};
};

/// The results that some of the runs have.
struct FolderResults {
  std::vector<std::string> header{};
  std::vector<std::vector<std::string>> cells{};  ///< per run
  std::vector<std::vector<double>> values{};      ///< per result; NaN where a run has none
};

FolderResults results_of(const std::vector<const FolderRun*>& runs) {
  struct Result {
    const char* title;
    std::optional<double> Summary::*figure;
    double factor;
    int digits;
  };
  constexpr Result kResults[] = {{"images/s", &Summary::images_per_s, 1, 0},
                                 {"top-1, %", &Summary::top1, 100, 2},
                                 {"test loss", &Summary::test_loss, 1, 4},
                                 {"load, ms per step", &Summary::load_s_per_step, 1e3, 3},
                                 {"update, ms per step", &Summary::update_s_per_step, 1e3, 3},
                                 {"wall, s", &Summary::wall_s, 1, 1}};
  FolderResults all{.cells = std::vector<std::vector<std::string>>(runs.size())};
  for (const Result& column : kResults) {
    std::vector<double> values;
    for (const FolderRun* run : runs)
      values.push_back(column.factor * to_number(run->summary.*column.figure));
    if (std::none_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }))
      continue;
    all.header.emplace_back(column.title);
    for (std::size_t run = 0; run < runs.size(); ++run)
      all.cells[run].push_back(
          std::isfinite(values[run]) ? fmt::format("{:.{}f}", values[run], column.digits) : "");
    all.values.push_back(std::move(values));
  }
  all.header.emplace_back("bound");
  for (std::size_t run = 0; run < runs.size(); ++run)
    all.cells[run].push_back(runs[run]->summary.bound.value_or(""));
  return all;
}

/// Returns the table of a group of runs: results, state, then the keys that people vary or that
/// explain results.
ReportTable folder_table(const std::vector<const FolderRun*>& runs) {
  constexpr std::size_t kMaxKeys = 8;
  ReportTable table{.id = "runs",
                    .title = "The runs",
                    .caption = "Results, then the keys that differ.",
                    .header = {"run"},
                    .chooses_runs = true};
  std::vector<ConfigColumn> configs;
  bool kinds = false;
  for (const FolderRun* run : runs) {
    configs.push_back({run->name, run->config});
    kinds |= run->kind != "run";
  }
  const FolderResults results = results_of(runs);
  const RunColumns columns = run_columns(config_table(configs), results.values, kMaxKeys);
  const bool rest = std::any_of(columns.rest.begin(), columns.rest.end(),
                                [](const std::string& text) { return !text.empty(); });
  const auto extend = [](std::vector<std::string>& to, const std::vector<std::string>& more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  table.results = results.header.size();
  extend(table.header, results.header);
  if (kinds) table.header.emplace_back("kind");
  table.header.emplace_back("state");
  extend(table.header, columns.keys);
  if (rest) table.header.emplace_back("other keys");
  if (rest) table.caption += " millrace report RUN RUN shows every key.";
  for (std::size_t run = 0; run < runs.size(); ++run) {
    std::vector<std::string> row{runs[run]->name};
    extend(row, results.cells[run]);
    if (kinds) row.push_back(runs[run]->kind);
    row.push_back(runs[run]->summary.there ? state_of(runs[run]->summary) : "-");
    extend(row, columns.cells[run]);
    if (rest) row.push_back(columns.rest[run]);
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Reads what the table shows of each run. Names damaged ones in the report's notes.
std::vector<FolderRun> read_folder(const std::vector<fs::path>& runs,
                                   const std::vector<std::string>& names, Report& report) {
  std::vector<FolderRun> all;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    FolderRun run{.name = names[i], .kind = kind_of(runs[i])};
    try {
      run.config = config_at(runs[i] / "config.toml");
      run.summary = read_summary(runs[i] / "summary.json");
    } catch (const DataError& error) {
      if (run.kind != "run") report.notes.push_back(fmt::format("{}: {}", names[i], error.what()));
    }
    run.recipe = run.summary.recipe.value_or("");
    for (const auto& [key, value] : run.config)
      if (key == "recipe" && run.recipe.empty() && value.size() >= 2)
        run.recipe = value.substr(1, value.size() - 2);
    all.push_back(std::move(run));
  }
  return all;
}

/// Adds a table for each recipe, the one with most runs first: runs of one recipe have the columns
/// that tell them apart, whatever others vary.
void add_folder_tables(const std::vector<FolderRun>& runs, Report& report) {
  std::map<std::string, std::vector<const FolderRun*>> by_recipe;
  for (const FolderRun& run : runs) by_recipe[run.recipe].push_back(&run);
  std::vector<std::pair<std::string, std::vector<const FolderRun*>>> groups(by_recipe.begin(),
                                                                            by_recipe.end());
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  for (const auto& [recipe, group] : groups) {
    std::vector<Summary> trained;
    std::vector<ConfigColumn> configs;
    for (const FolderRun* run : group) {
      if (run->kind == "run") trained.push_back(run->summary);
      configs.push_back({run->name, run->config});
    }
    add_confounders(trained, keys_in(config_table(configs)), report);
    ReportTable table = folder_table(group);
    if (groups.size() > 1) {
      table.title = fmt::format("{}: {} {}", recipe.empty() ? "no recipe" : recipe, group.size(),
                                group.size() == 1 ? "run" : "runs");
      if (&group != &groups.front().second)
        table.id += fmt::format("-{}", report.tables.size() + 1);
    }
    report.tables.push_back(std::move(table));
  }
}

}  // namespace

std::vector<fs::path> runs_below(const fs::path& folder) {
  std::vector<fs::path> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (fs::exists(entry.path() / "config.toml", error) ||
        fs::exists(entry.path() / "design.json", error))
      runs.push_back(entry.path());
  std::sort(runs.begin(), runs.end());
  return runs;
}

Report folder_report(const fs::path& folder) {
  constexpr std::size_t kMaxPoints = 100;
  const std::vector<fs::path> runs = runs_below(folder);
  const std::vector<std::string> names = names_of(runs);
  Report report;
  report.title = fmt::format("{}: {} runs", folder.filename().string(), runs.size());
  const std::vector<FolderRun> read = read_folder(runs, names, report);
  std::vector<Report> single;
  for (std::size_t i = 0; i < runs.size(); ++i)
    single.push_back(read[i].kind == "run" ? report_or_note(runs[i], report) : Report());
  add_folder_tables(read, report);
  report.figures = overlaid(names, single);
  make_distinct(report.figures);
  for (Figure& figure : report.figures)
    for (Series& series : figure.series)
      if (figure.kind == FigureKind::line) thin(series, kMaxPoints);
  return report;
}

}  // namespace millrace::study
