// Compares the ranks of a run, and several runs.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "millrace/error.h"
#include "study/analysis/wait_breakdown.h"
#include "study/records/run_files.h"
#include "study/report/figures.h"
#include "study/report/reports.h"
#include "study/report/run_columns.h"
#include "study/report/run_facts.h"
#include "study/sweep/confounders.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json rank_in(const Json& summary, int rank) {
  if (summary.is_object() && summary.contains("ranks") && summary["ranks"].is_array())
    for (const Json& one : summary["ranks"])
      if (number_at(one, {"rank"}) == rank) return one;
  return nullptr;
}

/// Returns the count and its share of `all`; "-" for both if the count is not known.
std::vector<std::string> share_of(double count, double all) {
  if (!std::isfinite(count)) return {"-", "-"};
  return {with_thousands(count), all > 0 ? fmt::format("{:.1f}%", 100 * count / all) : "-"};
}

/// Returns the sum of the known counts.
double sum_of(const std::vector<double>& counts) {
  double sum = 0;
  for (const double count : counts) sum += std::isfinite(count) ? count : 0;
  return sum;
}

/// Adds a column of the ranks' GPU utilisation, if any was recorded.
void add_utilization(const std::vector<RankSteps>& ranks, const Json& summary, ReportTable& table) {
  std::vector<double> shares;
  for (const RankSteps& one : ranks)
    shares.push_back(number_at(rank_in(summary, one.rank), {"gpu_utilization"}));
  if (std::none_of(shares.begin(), shares.end(), [](double share) { return std::isfinite(share); }))
    return;
  table.header.emplace_back("GPU utilisation");
  for (std::size_t i = 0; i < shares.size(); ++i)
    table.rows[i].push_back(std::isfinite(shares[i]) ? fmt::format("{:.1f}%", 100 * shares[i])
                                                     : "-");
}

}  // namespace

void add_replicas(const Json& summary, Report& report) {
  if (!summary.is_object() || !summary.contains("replica_images")) return;
  std::vector<double> counts;
  for (const Json& count : summary["replica_images"])
    counts.push_back(count.is_number() ? count.get<double>() : NAN);
  ReportTable table{.id = "replicas",
                    .title = "Replicas",
                    .caption = "Training samples that each replica was given by this process.",
                    .header = {"replica", "images", "of all"}};
  for (const double count : counts) {
    table.rows.push_back({std::to_string(table.rows.size())});
    for (std::string& cell : share_of(count, sum_of(counts)))
      table.rows.back().push_back(std::move(cell));
  }
  if (!table.rows.empty()) report.tables.push_back(std::move(table));
}

std::vector<int> other_ranks(const fs::path& run) {
  std::vector<int> ranks;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run, error)) {
    const std::string name = entry.path().filename().string();
    int rank = 0, end = 0;
    if (std::sscanf(name.c_str(), "steps.rank%d.csv%n", &rank, &end) == 1 &&
        end == static_cast<int>(name.size()))
      ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

namespace {

/// Returns the key of the largest number in an object, "-" if none is positive.
std::string largest_in(const Json& object, const char* key) {
  std::string name = "-";
  double largest = 0;
  if (object.is_object() && object.contains(key) && object[key].is_object())
    for (const auto& [part, value] : object[key].items())
      if (value.is_number() && value.get<double>() > largest) {
        largest = value;
        name = part;
      }
  return name;
}

constexpr double kNoWait = 0.01;  ///< part of a run up to which waits for the network are normal

/// Names the rank that the others have waited for, and why, or the network.
void add_straggler(const Json& summary, Report& report) {
  const std::string late = text_at(summary, {"straggler_rank"});
  if (late.empty()) return;
  const std::string on = text_at(summary, {"straggler_on"});
  const double network = number_at(summary, {"network_wait_s"});
  const double wall = number_at(summary, {"wall_s"});
  const std::string rank = "rank " + late + (on.empty() || on == "network" ? "" : " (" + on + ")");
  const std::string link = network <= kNoWait * wall ? "none" : "the network, no rank";
  report.facts.emplace_back("straggler", on == "network" ? link : rank);
  if (std::isfinite(network))
    report.facts.emplace_back("waits for the network", fmt::format("{:.3f} s per rank", network));
}

}  // namespace

void add_ranks(const std::vector<RankSteps>& ranks, const Json& summary, Report& report) {
  ReportTable table{
      .id = "ranks",
      .title = "Ranks",
      .caption =
          "images: training samples that the rank was given by its process. waited for: "
          "seconds that the other ranks spent waiting for this one.",
      .header = {"rank", "host", "images", "of all", "steps", "load s", "update s",
                 "of it peer_wait s", "other s", "waited for, s", "because of"}};
  std::vector<double> images;
  for (const RankSteps& one : ranks)
    images.push_back(number_at(rank_in(summary, one.rank), {"images"}));
  Figure figure{
      .id = "rank-time",
      .title = "Time per rank",
      .caption = "A rank with much peer_wait waits for the others; the straggler has little.",
      .kind = FigureKind::stacked_bar,
      .x_label = "rank",
      .y_label = "seconds",
      .series = {{.name = "load"}, {.name = "update"}, {.name = "peer_wait"}}};
  for (const auto& [rank, steps] : ranks) {
    const Json told = rank_in(summary, rank);
    const double load = in_seconds(steps->all.load_ns());
    const double update = in_seconds(steps->all.update_ns());
    const double wait =
        in_seconds(steps->all.ns[static_cast<std::size_t>(measure::Span::peer_wait)]);
    const double blamed = number_at(told, {"blamed_wait_s"});
    std::vector<std::string> given = share_of(images[table.rows.size()], sum_of(images));
    table.rows.push_back({std::to_string(rank), text_at(told, {"host"}), given[0], given[1],
                          with_thousands(static_cast<double>(steps->all.steps)),
                          fmt::format("{:.3f}", load), fmt::format("{:.3f}", update),
                          fmt::format("{:.3f}", wait),
                          fmt::format("{:.3f}", in_seconds(steps->all.other_ns())),
                          std::isfinite(blamed) ? fmt::format("{:.3f}", blamed) : "-",
                          largest_in(told, "blamed_on")});
    figure.categories.push_back(std::to_string(rank));
    figure.series[0].y.push_back(load);
    figure.series[1].y.push_back(update - wait);
    figure.series[2].y.push_back(wait);
    if (rank > 0 && steps->cut)
      report.notes.push_back(
          fmt::format("steps.rank{}.csv ends in an incomplete row, which is left out", rank));
  }
  add_utilization(ranks, summary, table);
  const double expected = number_at(summary, {"world_size"});
  if (expected > static_cast<double>(table.rows.size()))
    report.notes.push_back(
        fmt::format("only the tables of {} of {:.0f} ranks are here; the others are on "
                    "their hosts",
                    table.rows.size(), expected));
  add_straggler(summary, report);
  report.tables.push_back(std::move(table));
  append(report.figures, shown(std::move(figure)));
}

// Overlays the figures of several runs.

namespace {

/// Returns the folders' names, or whole paths if two names are equal.
std::vector<std::string> names_of(const std::vector<fs::path>& runs) {
  std::vector<std::string> names;
  for (const fs::path& run : runs) names.push_back(run.filename().string());
  if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) return names;
  names.clear();
  for (const fs::path& run : runs) names.push_back(run.string());
  return names;
}

std::string fact_in(const Report& report, const std::string& name) {
  for (const auto& [fact, value] : report.facts)
    if (fact == name) return value;
  return "-";
}

ReportTable fact_table(const std::vector<std::string>& names, const std::vector<Report>& reports) {
  ReportTable table{.id = "runs", .title = "The runs", .header = {""}};
  table.header.insert(table.header.end(), names.begin(), names.end());
  table.rows.push_back({"verdict"});
  for (const Report& report : reports)
    table.rows[0].push_back(report.verdict.empty() ? "-" : report.verdict);
  std::set<std::string> seen;
  for (const Report& report : reports)
    for (const auto& [name, value] : report.facts) {
      if (!seen.insert(name).second) continue;
      std::vector<std::string> row{name};
      for (const Report& one : reports) row.push_back(fact_in(one, name));
      table.rows.push_back(std::move(row));
    }
  return table;
}

/// Returns whether curves of several runs can share the figure: each run adds its lines, or one row
/// of its distributions.
bool is_shared(const Figure& figure) {
  return figure.kind == FigureKind::line || figure.kind == FigureKind::ridge;
}

/// Merges the figures of lines and of distributions with one id of all reports into one figure.
std::vector<Figure> overlaid(const std::vector<std::string>& names,
                             const std::vector<Report>& reports) {
  std::vector<Figure> all;
  for (std::size_t i = 0; i < reports.size(); ++i)
    for (const Figure& figure : reports[i].figures) {
      if (!is_shared(figure)) continue;
      auto same = std::find_if(all.begin(), all.end(), [&](const Figure& other) {
        return other.id == figure.id && other.x_label == figure.x_label;
      });
      if (same == all.end()) {
        same = all.insert(all.end(), figure);
        same->series.clear();
      }
      for (Series series : figure.series) {
        const bool ridge = figure.kind == FigureKind::ridge;
        if (ridge && series.name != kWholeStep) continue;  // one row per run
        series.name = ridge || figure.series.size() == 1 ? names[i] : names[i] + ", " + series.name;
        series.run = names[i];
        same->series.push_back(std::move(series));
      }
    }
  return all;
}

/// Tells figures of one id or of one title apart by their x axes: one run has two epochs and
/// another has not.
void make_distinct(std::vector<Figure>& figures) {
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const std::string id = figures[i].id, title = figures[i].title;
    bool twin = false;
    for (std::size_t j = i + 1; j < figures.size(); ++j) {
      if (figures[j].id == id) figures[j].id += "-by-" + figures[j].x_label;
      if (figures[j].title != title) continue;
      figures[j].title += " by " + figures[j].x_label;
      twin = true;
    }
    if (twin) figures[i].title += " by " + figures[i].x_label;
  }
}

/// Returns the bars that compare whole runs.
std::vector<Figure> run_bars(const std::vector<std::string>& names,
                             const std::vector<Json>& summaries) {
  const auto figure = [&](const char* id, const char* title, const char* caption, FigureKind kind,
                          const char* unit) {
    return Figure{.id = id,
                  .title = title,
                  .caption = caption,
                  .kind = kind,
                  .x_label = "run",
                  .y_label = unit,
                  .categories = names};
  };
  std::vector<Figure> all =
      bars(figure("step-time", "Step time", "Means over the run.", FigureKind::stacked_bar,
                  "ms per step"),
           {"load", "update"}, [&](const std::string& name, std::size_t run) {
             return 1e3 * number_at(summaries[run], {(name + "_s_per_step").c_str()});
           });
  append(
      all,
      bars(figure("blame", "Wait breakdown", "Load, split by what the trainer was waiting for.",
                  FigureKind::stacked_bar, "seconds"),
           {kPartNames.begin(), kPartNames.end()}, [&](const std::string& name, std::size_t run) {
             return number_at(summaries[run], {"blame", name.c_str()});
           }));
  append(all, bars(figure("rate", "Images per second",
                          "Over the run. One run each: millrace sweep says whether a difference is "
                          "real.",
                          FigureKind::bar, "images/s"),
                   {"images_per_s"}, [&](const std::string& name, std::size_t run) {
                     return number_at(summaries[run], {name.c_str()});
                   }));
  return all;
}

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

/// What a folder's report reads of one run, profile or sweep.
struct FolderRun {
  std::string name, kind;
  std::string recipe{};
  Json summary{};
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
    const char* key;
    double factor;
    int digits;
  };
  constexpr Result kResults[] = {{"images/s", "images_per_s", 1, 0},
                                 {"top-1, %", "top1", 100, 2},
                                 {"test loss", "test_loss", 1, 4},
                                 {"load, ms per step", "load_s_per_step", 1e3, 3},
                                 {"update, ms per step", "update_s_per_step", 1e3, 3},
                                 {"wall, s", "wall_s", 1, 1}};
  FolderResults all{.cells = std::vector<std::vector<std::string>>(runs.size())};
  for (const Result& column : kResults) {
    std::vector<double> values;
    for (const FolderRun* run : runs)
      values.push_back(column.factor * number_at(run->summary, {column.key}));
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
    all.cells[run].push_back(text_at(runs[run]->summary, {"bound"}));
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
    row.push_back(runs[run]->summary.is_object() ? state_of(runs[run]->summary) : "-");
    extend(row, columns.cells[run]);
    if (rest) row.push_back(columns.rest[run]);
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Differences of updates of single runs that are too large for noise of a few percent.
constexpr double kOtherUpdate = 1.1;

/// Returns the keys in which the recipes differ.
std::set<std::string> keys_in(const ReportTable& configs) {
  std::set<std::string> keys;
  for (const auto& row : configs.rows) keys.insert(row[0]);
  return keys;
}

/// Notes in what else the runs differ than the keys of their recipes: it is part of what the report
/// compares.
void add_confounders(const std::vector<Json>& summaries, const std::set<std::string>& keys,
                     Report& report) {
  std::vector<Settings> settings;
  for (const Json& summary : summaries) settings.push_back(settings_in(summary));
  for (const Confounder& one : confounders(settings, keys))
    report.notes.push_back(remark_on(one, keys));
}

/// Notes updates that take another time though all keys that differ are the loader's.
void add_update_shifts(const std::vector<std::string>& names, const std::vector<Json>& summaries,
                       const std::set<std::string>& keys, Report& report) {
  if (!are_of_the_loader(keys)) return;
  const auto update = [&](std::size_t run) {
    const double median = number_at(summaries[run], {"update_s_per_step_median"});
    return std::isfinite(median) ? median : number_at(summaries[run], {"update_s_per_step"});
  };
  for (std::size_t i = 1; i < names.size(); ++i) {
    const double ratio = update(i) / update(0);
    if (!(ratio > kOtherUpdate || ratio < 1 / kOtherUpdate)) continue;
    report.notes.push_back(fmt::format(
        "updates of {} take {:.2f} of the time of {}'s: no key of the loader sets that, "
        "so its cause is part of the comparison",
        names[i], ratio, names[0]));
  }
}

}  // namespace

Report comparison_report(const std::vector<fs::path>& runs) {
  const std::vector<std::string> names = names_of(runs);
  Report report;
  std::vector<Report> single;
  std::vector<Json> summaries;
  std::vector<ConfigColumn> configs;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    report.title += (i == 0 ? "" : i + 1 < runs.size() ? ", " : " and ") + names[i];
    single.push_back(run_report(runs[i]));
    summaries.push_back(read_json(runs[i] / "summary.json"));
    configs.push_back({names[i], config_at(runs[i] / "config.toml")});
    if (!is_complete(summaries.back()))
      report.notes.push_back(names[i] + ": " + state_of(summaries.back()));
  }
  report.figures = run_bars(names, summaries);
  append(report.figures, overlaid(names, single));
  make_distinct(report.figures);
  report.tables.push_back(fact_table(names, single));
  report.tables.push_back(config_table(configs));
  const std::set<std::string> keys = keys_in(report.tables.back());
  add_confounders(summaries, keys, report);
  add_update_shifts(names, summaries, keys, report);
  return report;
}

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

namespace {

/// Reads what the table shows of each run. Names damaged ones in the report's notes.
std::vector<FolderRun> read_folder(const std::vector<fs::path>& runs,
                                   const std::vector<std::string>& names, Report& report) {
  std::vector<FolderRun> all;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    FolderRun run{.name = names[i], .kind = kind_of(runs[i])};
    try {
      run.config = config_at(runs[i] / "config.toml");
      run.summary = read_json(runs[i] / "summary.json");
    } catch (const DataError& error) {
      if (run.kind != "run") report.notes.push_back(fmt::format("{}: {}", names[i], error.what()));
    }
    run.recipe = text_at(run.summary, {"recipe"});
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
    std::vector<Json> trained;
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
