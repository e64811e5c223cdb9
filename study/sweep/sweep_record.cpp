// Reads and writes the records of single runs.
#include "study/sweep/sweep_record.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "millrace/error.h"
#include "study/analysis/statistics.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

double number(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_number() ? json[key].get<double>() : kNaN;
}

Json parse(const fs::path& file) {
  std::ifstream in(file);
  return parse_json(in);
}

/// Runs that ended by a signal or an error leave a summary too.
bool is_finished(const Json& summary) {
  return summary.is_object() && summary.contains("wall_s") && !summary.contains("error") &&
         text_at(summary, {"interrupted"}) != "true";
}

/// Combines a number of all ranks; that of the whole run where ranks do not report it.
double over_ranks(const Json& summary, const char* key, bool mean) {
  const auto ranks = summary.find("ranks");
  if (ranks == summary.end() || !ranks->is_array() || ranks->empty()) return number(summary, key);
  double sum = 0;
  for (const Json& rank : *ranks) sum += rank.is_object() ? number(rank, key) : kNaN;
  if (!std::isfinite(sum)) return number(summary, key);
  return mean ? sum / static_cast<double>(ranks->size()) : sum;
}

double figure_in(const Json& summary, const SweepRecord& record, const std::string& name) {
  if (name == "epoch_s")
    return number_at(summary, {"dataset", "samples"}) / number(summary, "images_per_s");
  if (name == "host_bytes") return over_ranks(summary, "peak_rss_bytes", false);
  if (name == "gpu_utilization") return over_ranks(summary, "gpu_utilization", true);
  if (name == "cpu_utilization")
    return record.cpu_s / ((record.ended - record.begun) * number(summary, "cores"));
  const double value = number_at_path(summary, name);
  return name == "peak_device_bytes" && value == 0 ? kNaN : value;
}

Json to_json(const CommandFigures& figures) {
  Json json{{"wall_s", figures.wall_s}, {"cores", figures.cores}, {"metrics", Json::object()}};
  for (const auto& [name, value] : figures.metrics) json["metrics"][name] = value;
  return json;
}

std::optional<CommandFigures> command_figures(const Json& record) {
  const auto found = record.find("result");
  if (found == record.end()) return {};
  return CommandFigures{found->at("wall_s"), found->at("cores"),
                        found->at("metrics").get<std::map<std::string, double>>()};
}

/// Returns the summary that a run wrote. For a command, the sweep's own measurements replace what
/// it says of the same names; it may have written none.
Json summary_of(const fs::path& runs, const std::string& name,
                const std::optional<CommandFigures>& command) {
  if (!command) return parse(runs / name / "summary.json");
  Json summary = parse(command_folder(runs, name) / "summary.json");
  if (!summary.is_object()) summary = Json::object();
  summary["wall_s"] = command->wall_s;
  summary["cores"] = command->cores;
  return summary;
}

}  // namespace

fs::path command_folder(const fs::path& runs, const std::string& name) {
  return runs / name / "run";
}

double number_at_path(const Json& json, const std::string& path) {
  if (json.is_array() || json.is_object()) {
    const bool list = json.is_array();
    for (auto dot = path.size(); dot != std::string::npos;
         dot = dot == 0 ? std::string::npos : path.rfind('.', dot - 1)) {
      const std::string key = path.substr(0, dot);
      const Json* at = nullptr;
      if (!list && json.contains(key)) at = &json[key];
      if (list && !key.empty() && key.size() < 7 &&
          key.find_first_not_of("0123456789") == std::string::npos && std::stoul(key) < json.size())
        at = &json[std::stoul(key)];
      if (at == nullptr) continue;
      const double value = dot == path.size() ? (at->is_number() ? at->get<double>() : kNaN)
                                              : number_at_path(*at, path.substr(dot + 1));
      if (std::isfinite(value)) return value;
    }
  }
  return kNaN;
}

double SweepRecord::figure(const std::string& wanted) const {
  for (const FigureName& one : kFigures)
    if (wanted == one.name) return figures.*one.figure;
  const auto found = more.find(wanted);
  return found == more.end() ? kNaN : found->second;
}

std::string RunIdentity::key() const {
  const std::string text =
      fmt::format("{}\nbinary {}\ndata {}\nseed {}\ncopy {}\n", config, binary, data, seed, copy);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void write_record(const fs::path& runs, const SweepRecord& record) {
  Json json{{"key", record.key},
            {"binary", record.binary},
            {"data", record.data},
            {"session", record.session},
            {"overrides", record.overrides},
            {"repeat", record.repeat},
            {"seed", record.seed},
            {"begun", record.begun},
            {"ended", record.ended},
            {"noise", to_json(record.noise)},
            {"cpu_s", std::isfinite(record.cpu_s) ? Json(record.cpu_s) : Json(nullptr)}};
  if (record.command) json["result"] = to_json(*record.command);
  write_file(runs / (record.name + ".json"), to_text(json, 2) + "\n");
}

SweepRecord read_record(const fs::path& runs, const std::string& name) {
  const fs::path file = runs / (name + ".json");
  const Json json = parse(file);
  SweepRecord record;
  try {
    record = {.name = name,
              .key = json.at("key"),
              .binary = json.at("binary"),
              .data = json.at("data"),
              .session = json.at("session"),
              .overrides = json.at("overrides"),
              .repeat = json.at("repeat"),
              .seed = json.at("seed"),
              .begun = json.at("begun"),
              .ended = number(json, "ended"),
              .noise = noise_from(json.value("noise", Json())),
              .finished = false,
              .figures = {},
              .cpu_s = number(json, "cpu_s"),
              .more = {},
              .command = command_figures(json)};
  } catch (const nlohmann::json::exception&) {
    throw DataError(fmt::format("{} is damaged", file.string()),
                    "remove it and the run's folder beside it");
  }
  const Json summary = summary_of(runs, name, record.command);
  record.finished = record.command || is_finished(summary);
  if (record.finished)
    for (const FigureName& one : kFigures) record.figures.*one.figure = number(summary, one.name);
  return record;
}

void add_figures(const fs::path& runs, SweepRecord& record, std::span<const std::string> names) {
  const Json own = parse(runs / (record.name + ".json"));
  if (own.is_object()) record.command = command_figures(own);
  const Json summary = summary_of(runs, record.name, record.command);
  if (!summary.is_object()) return;
  record.cpu_s = number(own, "cpu_s");
  for (const char* name : kMoreFigures) record.more[name] = figure_in(summary, record, name);
  for (const std::string& name : names) record.more[name] = figure_in(summary, record, name);
  if (record.command)
    for (const auto& [name, value] : record.command->metrics) record.more[name] = value;
}

}  // namespace millrace::study
