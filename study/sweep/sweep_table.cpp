// Turns runs into rows, intervals, verdicts and warnings, and restores tables from a sweep's
// directory.

#include "study/sweep/sweep_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/record_file.h"
#include "millrace/error.h"
#include "predict/interval.h"
#include "study/records/run_files.h"
#include "study/sweep/study_file.h"
#include "study/sweep/sweep_columns.h"
#include "study/sweep/sweep_command.h"
#include "study/sweep/sweep_keys.h"

namespace millrace::study {
namespace {

using Json = nlohmann::ordered_json;
using Runs = std::vector<std::vector<SweepRecord>>;

std::vector<double> values_of(const std::vector<SweepRecord>& runs, const std::string& name) {
  std::vector<double> values;
  for (const SweepRecord& run : runs) values.push_back(run.figure(name));
  return values;
}

/// Returns one cell's effects against its reference.
std::vector<double> effects_of(const std::vector<SweepRecord>& cell,
                               const std::vector<SweepRecord>& reference, const std::string& name,
                               bool differences) {
  const auto mine = values_of(cell, name);
  const auto others = values_of(reference, name);
  if (!differences) return log_ratios(mine, others);
  std::vector<double> effects;
  for (std::size_t i = 0; i < std::min(mine.size(), others.size()); ++i)
    effects.push_back(mine[i] - others[i]);
  return effects;
}

/// Warns of blocks that were interrupted: events in between are part of their differences.
void warn_of_cut_blocks(const SweepTable& table, std::vector<std::string>& warnings) {
  for (std::size_t repeat = 0; repeat < table.repeats(); ++repeat) {
    std::set<std::string> sessions;
    double first = INFINITY, last = 0;
    for (const auto& cell : table.runs) {
      if (cell.empty()) continue;
      sessions.insert(cell[repeat].session);
      first = std::min(first, cell[repeat].begun);
      last = std::max(last, cell[repeat].begun);
    }
    if (sessions.size() > 1)
      warnings.push_back(
          fmt::format("block {} was cut by an interruption: its runs began up to {:.0f} s apart",
                      repeat + 1, last - first));
  }
}

void warn_of_outliers(const SweepTable& table, std::vector<std::string>& warnings) {
  for (const SweepMetric& metric : table.metrics())
    for (const auto& runs : table.runs) {
      const auto values = values_of(runs, metric.name);
      if (!std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }))
        continue;
      const auto found = outliers(values);
      for (std::size_t r = 0; r < found.size(); ++r)
        if (found[r])
          warnings.push_back(fmt::format("{} of {} lies far from the row's other runs", metric.name,
                                         runs[r].name));
    }
}

/// Sets the figure speedup of every run: its rate over that of its block's reference.
void set_speedups(Runs& runs, const std::vector<std::size_t>& reference) {
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (std::size_t r = 0; r < runs[i].size(); ++r)
      runs[i][r].more["speedup"] =
          runs[i][r].figures.images_per_s / runs[reference[i]][r].figures.images_per_s;
}

/// Compares the rows of each group with their reference by one metric.
std::vector<Comparison> comparisons(const SweepTable& table, const SweepMetric& metric,
                                    double confidence) {
  std::vector<Comparison> all(table.rows.size());
  const bool differences = by_differences(table.runs, metric);
  const double overlap = table.rules.folds > 1 && !metric.is_speed
                             ? 1.0 / (static_cast<double>(table.rules.folds) - 1)
                             : 0;
  for (std::size_t reference = 0; reference < table.rows.size(); ++reference) {
    std::vector<std::size_t> members;
    std::vector<std::vector<double>> effects;
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      if (i == reference || table.rows[i].reference != reference || table.runs[i].empty()) continue;
      members.push_back(i);
      effects.push_back(effects_of(table.runs[i], table.runs[reference], metric.name, differences));
    }
    const auto compared = compare(effects, {.margin = margin_of(table.rules, metric, differences),
                                            .more_is_faster = metric.more_is_faster,
                                            .confidence = confidence,
                                            .differences = differences,
                                            .is_speed = metric.is_speed,
                                            .overlap = overlap});
    for (std::size_t i = 0; i < compared.size(); ++i) all[members[i]] = compared[i];
  }
  return all;
}

bool has_confounder(const SweepTable& table, std::size_t row) {
  return std::ranges::any_of(table.confounders,
                             [&](const Confounder& one) { return one.differs[row]; });
}

/// Marks rows whose updates take another time though only the loader differs, and warns of them.
void compare_updates(SweepTable& table, double confidence) {
  const SweepMetric update{"update_s_per_step", true, false, false};
  if (table.repeats() < kRepeatsForVerdict || !sweeps_loader_alone(table.design) ||
      by_differences(table.runs, update))
    return;
  const auto compared = comparisons(table, update, confidence);
  for (std::size_t i = 0; i < compared.size(); ++i) {
    if (compared[i].verdict != Verdict::faster && compared[i].verdict != Verdict::slower) continue;
    table.rows[i].updates_differ = !has_confounder(table, i);
    table.warnings.push_back(
        fmt::format("updates of {} take {:.3f} [{:.3f} .. {:.3f}] of the first row's time: no key "
                    "of the loader sets that, so its cause is part of the comparison",
                    row_title(table, i), compared[i].ratio.mean, compared[i].ratio.low,
                    compared[i].ratio.high));
  }
}

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json to_json(const predict::Interval& interval) {
  return {{"mean", finite(interval.mean)},
          {"low", finite(interval.low)},
          {"high", finite(interval.high)}};
}

Json to_json(const Comparison& comparison) {
  return {{comparison.difference ? "difference" : "ratio", finite(comparison.ratio.mean)},
          {"low", finite(comparison.ratio.low)},
          {"high", finite(comparison.ratio.high)},
          {"low_90", finite(comparison.equivalence.low)},
          {"high_90", finite(comparison.equivalence.high)},
          {"smallest_detectable", finite(detectable_effect(comparison))},
          {"verdict", comparison.verdict == Verdict::none ? Json(nullptr)
                                                          : Json(name_of(comparison.verdict))}};
}

Json to_json(const SweepRecord& run) {
  Json json{{"run", run.name}, {"seed", run.seed}};
  for (const FigureName& one : kFigures) json[one.name] = finite(run.figures.*one.figure);
  json["noise"] = to_json(run.noise);
  for (const auto& [name, value] : run.more) json[name] = finite(value);
  json["settings"] = run.settings;
  return json;
}

}  // namespace

std::size_t SweepTable::repeats() const {
  std::size_t most = 0;
  for (const auto& cell : runs) most = std::max(most, cell.size());
  return most;
}

std::vector<SweepMetric> SweepTable::metrics() const {
  std::vector<SweepMetric> all{metric};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

const Comparison& SweepTable::comparison(std::size_t row, std::size_t index) const {
  return index == 0 ? rows[row].comparison : rows[row].others[index - 1];
}

std::vector<std::string> figure_names(const SweepDesign& design,
                                      const std::vector<SweepMetric>& metrics) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const FigureName& one : kFigures) add(one.name);
  for (const char* name : kMoreFigures) add(name);
  for (const SweepMetric& metric : metrics) add(metric.name);
  for (const std::string& name : design.figures) add(name);
  return names;
}

std::vector<std::size_t> references(const SweepDesign& design, const Runs& runs) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::size_t reference = i;
    for (std::size_t j = 0; j < i && reference == i; ++j)
      if (!runs[j].empty() && design.cells[j].group == design.cells[i].group) reference = j;
    all.push_back(reference);
  }
  return all;
}

bool by_differences(const Runs& runs, const SweepMetric& metric) {
  if (metric.is_share) return true;
  for (const auto& cell : runs)
    for (const SweepRecord& run : cell)
      if (run.figure(metric.name) <= 0) return true;
  return false;
}

double margin_of(const ComparisonRules& rules, const SweepMetric& metric, bool differences) {
  return metric.is_share ? rules.share : differences ? 0 : rules.ratio;
}

std::vector<std::vector<double>> block_effects(const SweepDesign& design, const Runs& runs,
                                               const SweepMetric& metric) {
  const auto reference = references(design, runs);
  const bool differences = by_differences(runs, metric);
  std::vector<std::vector<double>> rows;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (reference[i] != i && !runs[i].empty())
      rows.push_back(effects_of(runs[i], runs[reference[i]], metric.name, differences));
  return rows;
}

SweepTable sweep_table(SweepDesign design, Runs runs, std::vector<SweepMetric> metrics,
                       ComparisonRules rules, double confidence,
                       std::vector<std::string> refusals) {
  const auto names = figure_names(design, metrics);
  SweepTable table{.design = std::move(design),
                   .metric = metrics.front(),
                   .others = {metrics.begin() + 1, metrics.end()},
                   .rules = rules,
                   .runs = std::move(runs),
                   .rows = {},
                   .confounders = {},
                   .warnings = {}};
  const auto reference = references(table.design, table.runs);
  table.confounders = confounders(table.design, table.runs, reference);
  set_speedups(table.runs, reference);
  table.rows.resize(table.runs.size());
  for (std::size_t i = 0; i < table.runs.size(); ++i) {
    table.rows[i].reference = reference[i];
    if (i < refusals.size()) table.rows[i].refusal = refusals[i];
    for (const std::string& name : names)
      table.rows[i].figures[name] =
          table.runs[i].empty() ? predict::Interval{predict::kNaN, predict::kNaN, predict::kNaN}
                                : figure_interval(values_of(table.runs[i], name), !is_share(name));
  }
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    const auto compared = comparisons(table, metrics[m], confidence);
    for (std::size_t i = 0; i < compared.size(); ++i)
      if (m == 0)
        table.rows[i].comparison = compared[i];
      else
        table.rows[i].others.push_back(compared[i]);
  }
  std::vector<Noise> noise;
  for (const auto& cell : table.runs)
    for (const SweepRecord& run : cell) noise.push_back(run.noise);
  table.warnings = noise_warnings(noise);
  warn_of_cut_blocks(table, table.warnings);
  warn_of_outliers(table, table.warnings);
  compare_updates(table, confidence);
  return table;
}

Json to_json(const SweepTable& table) {
  Json json{{"warnings", table.warnings}, {"cells", Json::array()}};
  const auto metrics = table.metrics();
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    Json cell{{"overrides", table.design.cells[i].overrides}};
    for (const auto& name : figure_names(table.design, metrics))
      cell["figures"][name] = to_json(table.rows[i].figures.at(name));
    const bool compared = !table.is_reference(i) && !table.runs[i].empty();
    cell["comparison"] = compared ? to_json(table.rows[i].comparison) : Json(nullptr);
    cell["runs"] = Json::array();
    for (const SweepRecord& run : table.runs[i]) cell["runs"].push_back(to_json(run));
    for (std::size_t m = 0; m < metrics.size(); ++m)
      cell["comparisons"][metrics[m].name] =
          compared ? to_json(table.comparison(i, m)) : Json(nullptr);
    if (!table.rows[i].refusal.empty()) cell["refusal"] = table.rows[i].refusal;
    json["cells"].push_back(std::move(cell));
  }
  return json;
}

// Restores tables from sweep.json, or from the finished runs.

namespace {

namespace fs = std::filesystem;

/// The design as recorded in design.json.
struct Asked {
  SweepWords words;
  std::vector<SweepMetric> metrics;
};

Asked command_asked(const Json& json) {
  std::vector<std::string> keys = json.at("recipe");
  std::erase_if(keys, [](const std::string& word) { return word.starts_with("sweep."); });
  Asked asked{{"", command_design(keys, json.at("cells"), json.at("design"))}, {}};
  asked.words.design.command = json.at("command");
  for (const std::string text : json.at("metrics"))
    asked.metrics.push_back(command_metric(text).metric);
  if (asked.metrics.empty()) throw UsageError("it has no metric", "restore it from a copy");
  return asked;
}

Asked asked_at(const fs::path& path) {
  const fs::path file = path / "design.json";
  const Json json = read_json(file);
  try {
    if (json.contains("command")) return command_asked(json);
    auto metrics = sweep_metrics(json.value("metric", std::string("images_per_s")));
    if (!json.contains("study"))
      return {read_words(json.at("recipe"), json.at("cells"), json.at("design")),
              std::move(metrics)};
    const Study study = parse_study(json.at("study"), json.value("study_file", file.string()));
    std::vector<std::string> overrides = json.at("recipe");
    if (const std::string data = json.value("data", ""); !data.empty())
      overrides.insert(overrides.begin(), data);
    return {study_words(study, json.at("short"), overrides), std::move(metrics)};
  } catch (const nlohmann::json::exception&) {
    throw DataError(
        fmt::format("{} {}", file.string(), json.is_null() ? "is missing" : "is damaged"),
        "millrace sweep --resume --run DIR with the original arguments rewrites it");
  } catch (const UsageError& error) {
    throw DataError(fmt::format("{} is damaged: {}", file.string(), error.what()), error.hint());
  }
}

SweepRecord record_of(const Json& json, std::uint64_t repeat,
                      const std::vector<std::string>& names) {
  SweepRecord record;
  record.name = text_at(json, {"run"});
  record.repeat = repeat;
  if (json.is_object() && json.contains("seed") && json["seed"].is_number_unsigned())
    record.seed = json["seed"];
  record.finished = true;
  for (const FigureName& one : kFigures) record.figures.*one.figure = number_at(json, {one.name});
  record.noise = noise_from(json.is_object() ? json.value("noise", Json()) : Json());
  for (const std::string& name : names) record.more[name] = number_at(json, {name.c_str()});
  if (json.is_object() && json.contains("settings"))
    record.settings = settings_in(json["settings"]);
  return record;
}

/// Computes the table with the sweep's own code, from the same figures.
SweepTable table_of(const fs::path& file, const Json& json, Asked asked) {
  const auto damaged = [&](const std::string& what) {
    return DataError(fmt::format("{} is damaged: {}", file.string(), what),
                     "millrace sweep --resume --run DIR rewrites it");
  };
  if (!json.contains("cells") || !json["cells"].is_array()) throw damaged("it has no cells");
  const auto names = figure_names(asked.words.design, asked.metrics);
  std::vector<std::vector<SweepRecord>> runs;
  std::vector<std::string> refusals;
  std::size_t most = 0;
  for (const Json& cell : json["cells"]) {
    runs.emplace_back();
    if (!cell.is_object() || !cell.contains("runs") || !cell["runs"].is_array())
      throw damaged("a cell has no runs");
    for (const Json& run : cell["runs"]) {
      runs.back().push_back(record_of(run, runs.back().size(), names));
      if (!base::is_file_name(runs.back().back().name)) throw damaged("a run has no name");
    }
    most = std::max(most, runs.back().size());
    refusals.push_back(text_at(cell, {"refusal"}));
  }
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (runs[i].size() != most && (!runs[i].empty() || refusals[i].empty()))
      throw damaged("cells have different numbers of runs");
  if (runs.size() != asked.words.design.cells.size())
    throw damaged("it has other combinations than design.json");
  ComparisonRules rules;
  if (const double ratio = number_at(json, {"margin"}); std::isfinite(ratio)) rules.ratio = ratio;
  if (const double share = number_at(json, {"share_margin"}); std::isfinite(share))
    rules.share = share;
  if (const double folds = number_at(json, {"folds"}); folds >= 2 && folds <= kMaxFolds)
    rules.folds = static_cast<std::uint64_t>(folds);
  SweepTable table =
      sweep_table(std::move(asked.words.design), std::move(runs), std::move(asked.metrics), rules,
                  json.contains("auto") ? kConfidenceAfterPilot : kConfidence, std::move(refusals));
  // Only the sweep itself knows which blocks were interrupted.
  table.warnings.clear();
  if (json.contains("warnings") && json["warnings"].is_array())
    for (const Json& warning : json["warnings"])
      if (warning.is_string()) table.warnings.push_back(warning.get<std::string>());
  return table;
}

/// Returns all records of runs/, by name.
std::vector<SweepRecord> records_in(const fs::path& runs) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(runs, error))
    if (const std::string name = entry.path().stem().string();
        entry.path().extension() == ".json" && base::is_file_name(name))
      names.push_back(name);
  std::sort(names.begin(), names.end());
  std::vector<SweepRecord> records;
  for (const std::string& name : names) records.push_back(read_record(runs, name));
  return records;
}

/// Returns the repeats in which every cell has finished.
std::vector<std::vector<SweepRecord>> whole_blocks(const SweepDesign& design,
                                                   const std::vector<SweepRecord>& records) {
  std::uint64_t repeats = 0;
  for (const SweepRecord& record : records) repeats = std::max(repeats, record.repeat + 1);
  std::vector<std::vector<SweepRecord>> runs(design.cells.size());
  for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
    std::vector<const SweepRecord*> block;
    for (const SweepCell& cell : design.cells)
      for (const SweepRecord& record : records)
        if (record.repeat == repeat && record.overrides == cell.overrides &&
            std::find(block.begin(), block.end(), &record) == block.end()) {
          block.push_back(&record);
          break;
        }
    if (block.size() != design.cells.size()) continue;
    for (std::size_t i = 0; i < block.size(); ++i) runs[i].push_back(*block[i]);
  }
  return runs;
}

}  // namespace

SweepFiles read_sweep(const fs::path& path) {
  SweepFiles sweep;
  Asked asked = asked_at(path);
  sweep.recipe = asked.words.recipe;
  const Json json = read_json(path / "sweep.json");
  if (json.is_object()) {
    sweep.finished = true;
    sweep.table = table_of(path / "sweep.json", json, std::move(asked));
    return sweep;
  }
  std::vector<SweepRecord> all = records_in(path / "runs");
  sweep.begun = all.size();
  for (SweepRecord& record : all)
    if (record.finished && record.binary == all.back().binary)
      sweep.runs.push_back(std::move(record));
  const auto names = figure_names(asked.words.design, asked.metrics);
  for (SweepRecord& record : sweep.runs) add_figures(path / "runs", record, names);
  auto blocks = whole_blocks(asked.words.design, sweep.runs);
  if (!blocks.empty() && !blocks[0].empty())
    sweep.table = sweep_table(std::move(asked.words.design), std::move(blocks),
                              std::move(asked.metrics), ComparisonRules());
  return sweep;
}

}  // namespace millrace::study
