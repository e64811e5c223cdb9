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

}  // namespace

std::string RunIdentity::key() const {
  const std::string text =
      fmt::format("{}\nbinary {}\ndata {}\nseed {}\ncopy {}\n", config, binary, data, seed, copy);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void write_record(const fs::path& runs, const SweepRecord& record) {
  const Json json{{"key", record.key},
                  {"binary", record.binary},
                  {"data", record.data},
                  {"session", record.session},
                  {"overrides", record.overrides},
                  {"repeat", record.repeat},
                  {"seed", record.seed},
                  {"begun", record.begun},
                  {"ended", record.ended},
                  {"noise", to_json(record.noise)}};
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
              .figures = {}};
  } catch (const nlohmann::json::exception&) {
    throw DataError(fmt::format("{} is damaged", file.string()),
                    "remove it and the run's folder beside it");
  }
  const Json summary = parse(runs / name / "summary.json");
  record.finished = is_finished(summary);
  if (record.finished)
    for (const FigureName& one : kFigures) record.figures.*one.figure = number(summary, one.name);
  return record;
}

}  // namespace millrace::study
