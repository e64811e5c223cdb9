// Lists plugins, units and parameters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "augment/ops/builtin.h"
#include "base/text.h"
#include "millrace/error.h"
#include "millrace/reader.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"
#include "study/records/run_directory.h"
#include "tools/plugins/plugins.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kReaders = "readers";  ///< built-in readers are classes, not tables

Json json_of(const Value& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}

const char* type_name(const millrace_param& param) {
  constexpr const char* kNames[] = {"boolean", "integer", "number",  "text",
                                    "choice",  "numbers", "integers"};
  return kNames[param.type - MILLRACE_BOOLEAN];  // the table has been validated
}

Json param_json(const millrace_param& declared) {
  const Param param = plugins::to_param(declared);
  Json json{{"name", param.name},
            {"type", type_name(declared)},
            {"default", json_of(param.fallback)},
            {"help", param.help}};
  const bool ranged = param.type == Param::Type::integer || param.type == Param::Type::number ||
                      param.type == Param::Type::numbers;
  if (ranged && std::isfinite(param.min)) json["min"] = param.min;
  if (ranged && std::isfinite(param.max)) json["max"] = param.max;
  if (!param.choices.empty()) json["choices"] = param.choices;
  if (!param.lengths.empty()) json["lengths"] = param.lengths;
  json["expects"] = param.expects();
  return json;
}

Json unit_json(const millrace_unit& unit, const std::string& plugin, const std::string& version) {
  return {{"kind", plugins::name_of(plugins::kind_of(unit))},
          {"name", unit.name},
          {"plugin", plugin},
          {"version", version},
          {"help", unit.help}};
}

Json full_unit_json(const millrace_unit& unit, const plugins::PluginEntry& plugin) {
  Json json = unit_json(unit, plugin.table->id, plugin.table->version);
  json["random"] = unit.random != 0;
  if (const char* const python = augment::python_of(unit)) json["python"] = python;
  json["parameters"] = Json::array();
  for (std::size_t i = 0; i < unit.param_count; ++i)
    json["parameters"].push_back(param_json(plugins::param_of(unit, i)));
  return json;
}

Json plugin_json(const plugins::PluginEntry& plugin) {
  const millrace_plugin_table& table = *plugin.table;
  return {{"id", table.id},
          {"version", table.version},
          {"licence", table.licence},
          {"abi", fmt::format("{}.{}", table.abi_major, table.abi_minor)},
          {"file", plugin.file.empty() ? Json(nullptr) : Json(plugin.file)}};
}

/// Returns all units, including those of the shipped decoders, which it loads.
std::vector<plugins::PluginEntry> everything() {
  plugins::shipped_decoders();
  return plugins::plugins_in_use();
}

/// Returns a plugin's own text, made safe for one line.
std::string words_in(const Json& value) { return base::printable(value.get<std::string>()); }

std::string place_of(const Json& plugin) {
  return plugin["file"].is_null() ? "built in" : words_in(plugin["file"]);
}

std::string unit_text(const Json& unit) {
  std::string text =
      fmt::format("{} {}: {}{}\n", words_in(unit["kind"]), words_in(unit["name"]),
                  words_in(unit["help"]), unit["random"].get<bool>() ? " (random)" : "");
  std::size_t width = 0;
  for (const Json& param : unit["parameters"])
    width = std::max(width, words_in(param["name"]).size());
  for (const Json& param : unit["parameters"])
    text += fmt::format("  {:{}}  {}, by default {}: {}\n", words_in(param["name"]), width,
                        words_in(param["expects"]), study::to_text(param["default"]),
                        words_in(param["help"]));
  if (unit["parameters"].empty()) text += "  takes no parameters\n";
  return text;
}

}  // namespace

Json list_json() {
  Json json{{"command", "plugins list"}, {"plugins", Json::array()}, {"units", Json::array()}};
  for (const ReaderDeclaration& reader : built_in_readers())
    json["units"].push_back({{"kind", "reader"},
                             {"name", reader.name},
                             {"plugin", kReaders},
                             {"version", nullptr},
                             {"help", reader.help}});
  for (const plugins::PluginEntry& plugin : everything()) {
    json["plugins"].push_back(plugin_json(plugin));
    for (std::size_t i = 0; i < plugin.table->unit_count; ++i)
      json["units"].push_back(
          unit_json(*plugin.table->units[i], plugin.table->id, plugin.table->version));
  }
  return json;
}

const std::vector<std::string>& unit_kinds() {
  using plugins::UnitKind;
  static const std::vector<std::string> all = [] {
    std::vector<std::string> kinds;
    for (std::size_t kind = 0; kind <= static_cast<std::size_t>(UnitKind::batch); ++kind)
      kinds.emplace_back(plugins::name_of(static_cast<UnitKind>(kind)));
    return kinds;
  }();
  return all;
}

void keep_kind(Json& list, const std::string& kind) {
  const auto& kinds = unit_kinds();
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
    throw UsageError(fmt::format("plugins list: unknown kind {}", kind),
                     fmt::format("did you mean {}? the kinds are {}", base::nearest(kind, kinds),
                                 fmt::join(kinds, ", ")));
  auto kept = Json::array();
  for (const Json& unit : list["units"])
    if (unit["kind"] == kind) kept.push_back(unit);
  list["units"] = std::move(kept);
}

std::string list_text(const Json& list) {
  std::size_t width = 0;
  for (const Json& unit : list["units"]) width = std::max(width, words_in(unit["name"]).size());
  const auto units_of = [&](const std::string& plugin) {
    std::string text;
    for (const Json& unit : list["units"])
      if (unit["plugin"] == plugin)
        text += fmt::format("  {:9}  {:{}}  {}\n", words_in(unit["kind"]), words_in(unit["name"]),
                            width, words_in(unit["help"]));
    return text;
  };
  std::string text;
  const auto add = [&](const std::string& title, const std::string& units) {
    if (!units.empty()) text += title + "\n" + units;
  };
  add(fmt::format("{}, built in", kReaders), units_of(kReaders));
  for (const Json& plugin : list["plugins"])
    add(fmt::format("{} {} ({}), {}", words_in(plugin["id"]), words_in(plugin["version"]),
                    words_in(plugin["licence"]), place_of(plugin)),
        units_of(plugin["id"]));
  return text;
}

Json info_json(const plugins::PluginEntry& plugin) {
  Json json{{"command", "plugins info"}, {"plugin", plugin_json(plugin)}, {"units", Json::array()}};
  for (std::size_t i = 0; i < plugin.table->unit_count; ++i)
    json["units"].push_back(full_unit_json(*plugin.table->units[i], plugin));
  return json;
}

Json info_json(const std::string& name) {
  std::vector<std::string> names;
  for (const ReaderDeclaration& reader : built_in_readers()) {
    names.push_back(reader.name);
    if (reader.name != name) continue;
    return {{"command", "plugins info"},
            {"plugin", {{"id", kReaders}, {"version", nullptr}, {"file", nullptr}}},
            {"units",
             {{{"kind", "reader"},
               {"name", name},
               {"plugin", kReaders},
               {"version", nullptr},
               {"help", reader.help},
               {"random", false},
               {"parameters", Json::array()}}}}};
  }
  for (const plugins::PluginEntry& plugin : everything()) {
    if (plugin.table->id == name) return info_json(plugin);
    for (std::size_t i = 0; i < plugin.table->unit_count; ++i) {
      const millrace_unit& unit = *plugin.table->units[i];
      names.emplace_back(unit.name);
      if (unit.name != name) continue;
      return {{"command", "plugins info"},
              {"plugin", plugin_json(plugin)},
              {"units", {full_unit_json(unit, plugin)}}};
    }
  }
  throw UsageError(
      fmt::format("unknown unit {}", name),
      fmt::format("did you mean {}? `millrace plugins list` lists all; plugins.path=DIR "
                  "adds those of plugins",
                  base::nearest(name, names)));
}

std::string info_text(const Json& info) {
  const Json& plugin = info["plugin"];
  std::string text;
  for (const Json& unit : info["units"]) text += unit_text(unit);
  if (plugin["version"].is_null()) return text + "built in\n";
  return text + fmt::format("from {} {} ({}), plugin interface {}, {}\n", words_in(plugin["id"]),
                            words_in(plugin["version"]), words_in(plugin["licence"]),
                            words_in(plugin["abi"]), place_of(plugin));
}

}  // namespace millrace::tools
