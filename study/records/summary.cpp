// Converts summary.json by the list of its fields.

#include "study/records/summary.h"

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <nlohmann/json.hpp>

#include "study/records/run_files.h"

namespace millrace::study {
namespace {

using Json = nlohmann::ordered_json;

enum Presence { required, nullable, beside, omitted };

struct FieldFacts {
  const char* name;
  Presence presence;
  const char *unit, *since, *meaning;
};

// Each struct's fields, visited in their order with the facts on each.
#define RECORD(type)                                         \
  template <class Record, class Visit>                       \
  requires std::is_same_v<std::remove_const_t<Record>, type> \
  void each_field([[maybe_unused]] Record& record, const Visit& visit) {
#define FIELD(type, name, presence, unit, version, meaning) \
  visit(FieldFacts{#name, presence, unit, version, meaning}, record.name);
#define END() }
#include "study/records/summary_fields.inc"
#undef RECORD
#undef FIELD
#undef END

template <class Value>
concept Scalar = std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>;

/// Reads values, and returns whether the JSON has their type. A list with an element of another
/// type is left empty.
struct JsonReader {
  static bool read(const Json& json, bool& value) {
    value = json.is_boolean() && json.get<bool>();
    return json.is_boolean();
  }
  static bool read(const Json& json, std::string& value) {
    if (json.is_string()) value = json.get<std::string>();
    return json.is_string();
  }
  static bool read(const Json& json, double& value) {
    value = json.is_number() ? json.get<double>() : NAN;
    return json.is_number() || json.is_null();
  }
  template <std::integral Value>
  static bool read(const Json& json, Value& value) {  // other programs may write 2 as 2.0
    constexpr double kExact = 9007199254740992.0;
    const double number = json.is_number() ? json.get<double>() : NAN;
    if (!(number >= (std::is_signed_v<Value> ? -kExact : 0) && number <= kExact)) return false;
    value = json.get<Value>();
    return number == std::trunc(number);
  }
  template <class Value>
  static bool read(const Json& json, std::optional<Value>& value) {
    Value found{};
    const bool good = !json.is_null() && read(json, found);
    if (good) value = std::move(found);
    return good || json.is_null();
  }
  template <class Value>
  static bool read(const Json& json, std::vector<Value>& values) {
    bool good = json.is_array();
    for (std::size_t i = 0; good && i < json.size(); ++i) {
      values.emplace_back();
      good = read(json[i], values.back());
    }
    if (!good) values.clear();
    return good || json.is_null();
  }
  template <class Value>
  static bool read(const Json& json, Named<Value>& values) {
    if (!json.is_object()) return json.is_null();
    for (const auto& [name, value] : json.items()) {
      values.emplace_back(name, Value{});
      read(value, values.back().second);
    }
    return true;
  }
  template <class Record>
  static bool read(const Json& json, Record& record) {
    read_fields(json, record);
    return json.is_object() || json.is_null();
  }
  /// Returns the first field whose value has another type; empty if none has.
  template <class Record>
  static std::string read_fields(const Json& json, Record& record) {
    std::string mistyped;
    each_field(record, [&](const FieldFacts& field, auto& member) {
      const bool there = json.is_object() && json.contains(field.name);
      if (there && !read(json[field.name], member) && mistyped.empty()) mistyped = field.name;
    });
    return mistyped;
  }
};

struct JsonWriter {
  template <Scalar Value>
  static Json json(const Value& value) {
    return value;
  }
  static Json json(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
  template <class Value>
  static Json json(const std::optional<Value>& value) {
    return value ? json(*value) : Json(nullptr);
  }
  template <class Value>
  static Json json(const std::vector<Value>& values) {
    Json all = Json::array();
    for (const Value& value : values) all.push_back(json(value));
    return all;
  }
  template <class Value>
  static Json json(const Named<Value>& values) {
    Json all = Json::object();
    for (const auto& [name, value] : values) all[name] = json(value);
    return all;
  }
  template <class Record>
  static Json json(const Record& record) {
    Json all = Json::object();
    bool before = false;  // whether the field before is written
    each_field(record, [&](const FieldFacts& field, const auto& member) {
      const bool set = is_set(member);
      before = set || field.presence == required || field.presence == nullable ||
               (field.presence == beside && before);
      if (before) all[field.name] = set || field.presence == required ? json(member) : Json();
    });
    return all;
  }

  template <class Value>
  static bool is_set(const std::optional<Value>& value) {
    return value.has_value();
  }
  template <class Value>
  static bool is_set(const std::vector<Value>& values) {
    return !values.empty();
  }
  template <class Record>
  static bool is_set(const Record& record) {
    bool any = false;
    each_field(record, [&](const FieldFacts&, const auto& member) { any |= is_set(member); });
    return any;
  }
};

struct JsonSchema {
  static Json of(const bool&) { return {{"type", "boolean"}}; }
  static Json of(const std::string&) { return {{"type", "string"}}; }
  static Json of(const double&) { return {{"type", "number"}}; }
  static Json of(const std::integral auto&) { return {{"type", "integer"}}; }
  template <class Value>
  static Json of(const std::optional<Value>&) {
    return of(Value{});
  }
  template <class Value>
  static Json of(const std::vector<Value>&) {
    return {{"type", "array"}, {"items", of(Value{})}};
  }
  template <class Value>
  static Json of(const Named<Value>&) {
    Json one = of(Value{});
    if (std::is_same_v<Value, double>) one["type"] = {"number", "null"};
    return {{"type", "object"}, {"additionalProperties", std::move(one)}};
  }
  template <class Record>
  static Json of(const Record& record) {
    Json all{{"type", "object"}, {"required", Json::array()}, {"properties", Json::object()}};
    each_field(record, [&](const FieldFacts& field, const auto& member) {
      Json one{{"description", field.meaning}};
      if (*field.unit != '\0') one["unit"] = field.unit;
      one["since"] = field.since;
      one.update(of(member));
      if (field.presence == nullable || field.presence == beside)
        one["type"] = {one["type"], "null"};
      if (field.presence == required || field.presence == nullable)
        all["required"].push_back(field.name);
      all["properties"][field.name] = std::move(one);
    });
    return all;
  }
};

void add_rows(const Json& schema, const std::string& path, std::string& table) {
  if (schema.contains("properties"))
    for (const auto& [name, one] : schema["properties"].items()) {
      table += fmt::format("| `{}{}` | {} | {} | {} |\n", path, name, one.value("unit", ""),
                           one["since"].get<std::string>(), one["description"].get<std::string>());
      add_rows(one, path + name + ".", table);
    }
  const std::string owner = path.substr(0, path.size() - 1);
  if (schema.contains("items")) add_rows(schema["items"], owner + "[].", table);
  if (schema.contains("additionalProperties"))
    add_rows(schema["additionalProperties"], owner + ".*.", table);
}

}  // namespace

Summary summary_from(const Json& json) {
  Summary summary;
  summary.there = json.is_object();
  summary.mistyped = JsonReader::read_fields(json, static_cast<SummaryFields&>(summary));
  return summary;
}

Summary read_summary(const std::filesystem::path& file) { return summary_from(read_json(file)); }

RankRecord rank_from(const Json& json) {
  RankRecord rank;
  JsonReader::read(json, rank);
  return rank;
}

Json to_json(const SummaryFields& summary) { return JsonWriter::json(summary); }
Json to_json(const RankRecord& rank) { return JsonWriter::json(rank); }
Json to_json(const ColdRecord& cold) { return JsonWriter::json(cold); }
Json to_json(const RemoteRecord& remote) { return JsonWriter::json(remote); }
Json to_json(const std::vector<PluginRecord>& plugins) { return JsonWriter::json(plugins); }
Json to_json(const Named<double>& values) { return JsonWriter::json(values); }

const Json& summary_schema() {
  static const Json schema = [] {
    Json all{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
             {"title", "summary.json of a training run"}};
    all.update(JsonSchema::of(SummaryFields()));
    return all;
  }();
  return schema;
}

std::string summary_table() {
  std::string table = "| key | unit | since | content |\n| --- | --- | --- | --- |\n";
  add_rows(summary_schema(), "", table);
  return table;
}

}  // namespace millrace::study
