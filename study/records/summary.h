// summary.json as a record: reads it, writes it, and describes its fields.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace millrace::study {

/// An object's values by name, in the file's order. A null among numbers is NaN.
template <class Value>
using Named = std::vector<std::pair<std::string, Value>>;

/// A member of a record: numbers, strings and booleans are optional; lists and objects are empty
/// where the file has none.
template <class Value>
using Member = std::conditional_t<std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>,
                                  std::optional<Value>, Value>;

// The structs of summary_fields.inc, which says what each member means.
// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types and names.
#define RECORD(type) struct type {
#define FIELD(type, name, presence, unit, version, meaning) Member<type> name{};
#define END() \
  }           \
  ;
#include "study/records/summary_fields.inc"
#undef RECORD
#undef FIELD
#undef END
// NOLINTEND(bugprone-macro-parentheses)

/// A run's summary. Values of another type than their field's are not set: profiles and watched
/// runs have some under the same keys.
struct Summary : SummaryFields {
  bool there = false;      ///< the file exists
  std::string mistyped{};  ///< the first key whose value has another type; empty if none has
};

/// Reads a summary.json. Throws DataError if it is not a JSON object.
Summary read_summary(const std::filesystem::path& file);
/// Returns the record of a parsed summary.json, or of a line of metrics.jsonl, which shares keys
/// with it; `there` is false for anything but an object.
Summary summary_from(const nlohmann::ordered_json& json);

/// Returns whether a summary is that of a run's end. `pymillrace watch` also writes one while the
/// run goes on, with `complete: false`, for a run that is killed.
inline bool is_complete(const Summary& summary) {
  return summary.there && summary.complete != false;
}

/// Return the JSON of a record: its fields in their order. A summary's is the file's content.
nlohmann::ordered_json to_json(const SummaryFields& summary);
nlohmann::ordered_json to_json(const RankRecord& rank);
nlohmann::ordered_json to_json(const ColdRecord& cold);
nlohmann::ordered_json to_json(const RemoteRecord& remote);
nlohmann::ordered_json to_json(const std::vector<PluginRecord>& plugins);
nlohmann::ordered_json to_json(const Named<double>& values);
/// Reads the rank of a gathered text.
RankRecord rank_from(const nlohmann::ordered_json& json);

/// Returns the JSON schema of summary.json. A property has `description` (Markdown), `since`
/// (version) and, if it has one, `unit`.
const nlohmann::ordered_json& summary_schema();
/// Returns the schema's properties as rows of a table in Markdown.
std::string summary_table();

/// Returns the number; NaN if it is not set.
template <class Value>
double to_number(const std::optional<Value>& value) {
  return value ? static_cast<double>(*value) : NAN;
}

/// Returns the value; nothing for NaN and infinity, which JSON lacks.
inline std::optional<double> known(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

/// Returns the value of that name; null if there is none.
template <class Value>
const Value* find(const Named<Value>& values, std::string_view name) {
  for (const auto& [key, value] : values)
    if (key == name) return &value;
  return nullptr;
}

}  // namespace millrace::study
