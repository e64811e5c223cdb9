// Restores tables from sweep.json, or from the finished runs.
#include "study/sweep/sweep_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "millrace/error.h"
#include "study/records/run_files.h"
#include "study/sweep/study_file.h"
#include "study/sweep/sweep_command.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

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
    for (const Json& run : cell["runs"])
      runs.back().push_back(record_of(run, runs.back().size(), names));
    most = std::max(most, runs.back().size());
    refusals.push_back(text_at(cell, {"refusal"}));
  }
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (runs[i].size() != most && (!runs[i].empty() || refusals[i].empty()))
      throw damaged("cells have different numbers of runs");
  if (runs.size() != asked.words.design.cells.size())
    throw damaged("it has other combinations than design.json");
  SweepMargins margins;
  if (const double ratio = number_at(json, {"margin"}); std::isfinite(ratio)) margins.ratio = ratio;
  if (const double share = number_at(json, {"share_margin"}); std::isfinite(share))
    margins.share = share;
  SweepTable table =
      sweep_table(std::move(asked.words.design), std::move(runs), std::move(asked.metrics), margins,
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
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
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
                              std::move(asked.metrics), SweepMargins());
  return sweep;
}

}  // namespace millrace::study
