// Reads a run's JSON files with bounds on their nesting.
#include "study/records/run_files.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "millrace/error.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Drops values nested deeper than any of our records, because code that walks a document recurses
/// per level.
bool is_near(int depth, Json::parse_event_t, Json&) {
  constexpr int kDeepest = 64;
  return depth <= kDeepest;
}

const Json* find(const Json& json, std::initializer_list<const char*> keys) {
  const Json* at = &json;
  for (const char* key : keys) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

}  // namespace

Json parse_json(std::istream& in) { return Json::parse(in, is_near, /*allow_exceptions=*/false); }

Json read_json(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return nullptr;
  Json json = parse_json(in);
  if (!json.is_object())
    throw DataError(fmt::format("{} is damaged: it is not a JSON object", file.string()),
                    "move it away to get a report without it");
  return json;
}

std::vector<Json> read_json_lines(const fs::path& file, bool& cut) {
  std::vector<Json> lines;
  std::ifstream in(file, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    if (in.eof()) {  // no final newline: the writer was killed, or is still writing
      cut = true;
      break;
    }
    lines.push_back(Json::parse(line, is_near, /*allow_exceptions=*/false));
    if (!lines.back().is_object())
      throw DataError(
          fmt::format("{}:{} is damaged: not a JSON object", file.string(), lines.size()),
          "remove that line to get a report without it");
  }
  return lines;
}

double number_at(const Json& json, std::initializer_list<const char*> keys) {
  const Json* at = find(json, keys);
  return at != nullptr && at->is_number() ? at->get<double>() : NAN;
}

std::string text_at(const Json& json, std::initializer_list<const char*> keys) {
  const Json* at = find(json, keys);
  if (at == nullptr || at->is_null() || at->is_structured()) return "";
  return at->is_string() ? at->get<std::string>() : at->dump();
}

}  // namespace millrace::study
