#include "tools/commands/key_text.h"

#include <cmath>

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Param::Type type) {
  switch (type) {
    case Param::Type::boolean:
      return "boolean";
    case Param::Type::integer:
      return "integer";
    case Param::Type::number:
      return "number";
    case Param::Type::text:
      return "text";
    case Param::Type::choice:
      return "choice";
    case Param::Type::numbers:
      return "numbers";
  }
  return "";
}

Json limit_json(double limit) { return std::isfinite(limit) ? Json(limit) : Json(nullptr); }

}  // namespace

std::string value_text(const Param& param, const Value& value) {
  const bool is_word = std::holds_alternative<std::string>(value);
  return to_toml(value) + (param.unit.empty() || is_word ? "" : " " + param.unit);
}

Json value_json(const Value& value) {
  return std::visit([](const auto& one) { return Json(one); }, value);
}

Json key_json(const Param& param) {
  Json json{{"key", param.name},
            {"type", name_of(param.type)},
            {"default", value_json(param.fallback)},
            {"unit", param.unit.empty() ? Json(nullptr) : Json(param.unit)},
            {"help", param.help}};
  const bool is_number = param.type == Param::Type::integer || param.type == Param::Type::number ||
                         param.type == Param::Type::numbers;
  if (is_number) {
    json["min"] = limit_json(param.min);
    json["max"] = limit_json(param.max);
  }
  if (!param.choices.empty()) json["choices"] = param.choices;
  if (!param.word.empty()) json["word"] = param.word;
  return json;
}

}  // namespace millrace::tools
