// Declares, parses, checks and prints parameter values.
#include "millrace/param.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "millrace/error.h"
#include "recipe/quantity.h"

namespace millrace {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

template <class T>
std::optional<T> parsed(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc() || stop != end) return std::nullopt;
  return value;
}

[[noreturn]] void refuse(const Param& param, const std::string& given, const std::string& where) {
  std::string hint = fmt::format("{}: {}", param.name, param.help);
  if (param.type == Param::Type::choice)
    hint = fmt::format("did you mean {}? {}", base::nearest(given, param.choices), hint);
  if (const std::string units = recipe::units_like(param.unit); !units.empty())
    hint += fmt::format("; units: {}", units);
  throw UsageError(fmt::format("{}: {} expects {}, not {}", where, param.name, param.expects(),
                               given.empty() ? "nothing" : given),
                   hint);
}

bool in_range(const Param& param, double value) {
  return std::isfinite(value) && value >= param.min && value <= param.max;
}

std::string range(const Param& param) {
  if (std::isinf(param.min) && std::isinf(param.max)) return "";
  if (std::isinf(param.max)) return fmt::format(" of at least {}", param.min);
  if (std::isinf(param.min)) return fmt::format(" of at most {}", param.max);
  return fmt::format(" from {} to {}", param.min, param.max);
}

/// Returns " in MB/s" for a unit that values may be converted from.
std::string in_unit(const Param& param) {
  return recipe::units_like(param.unit).empty() ? "" : " in " + param.unit;
}

/// Returns the number in `text`, which may carry a unit, or nothing.
std::optional<Value> number_with_unit(const Param& param, std::string_view text) {
  if (param.unit.empty()) return std::nullopt;
  const std::optional<double> value = recipe::quantity_in(param.unit, trimmed(text));
  if (!value) return std::nullopt;
  if (param.type == Param::Type::number) return *value;
  if (std::abs(*value) > 0x1p53 || *value != std::floor(*value)) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

}  // namespace

Param Param::boolean(std::string name, bool fallback, std::string help) {
  Param param{.name = std::move(name),
              .type = Type::boolean,
              .fallback = fallback,
              .help = std::move(help),
              .choices = {}};
  return param;
}

Param Param::integer(std::string name, std::int64_t fallback, double min, double max,
                     std::string help) {
  return {.name = std::move(name),
          .type = Type::integer,
          .fallback = fallback,
          .help = std::move(help),
          .min = min,
          .max = max,
          .choices = {}};
}

Param Param::number(std::string name, double fallback, double min, double max, std::string help) {
  return {.name = std::move(name),
          .type = Type::number,
          .fallback = fallback,
          .help = std::move(help),
          .min = min,
          .max = max,
          .choices = {}};
}

Param Param::text(std::string name, std::string fallback, std::string help) {
  return {.name = std::move(name),
          .type = Type::text,
          .fallback = std::move(fallback),
          .help = std::move(help),
          .choices = {}};
}

Param Param::choice(std::string name, std::string fallback, std::vector<std::string> choices,
                    std::string help) {
  return {.name = std::move(name),
          .type = Type::choice,
          .fallback = std::move(fallback),
          .help = std::move(help),
          .choices = std::move(choices)};
}

Param Param::numbers(std::string name, std::vector<double> fallback,
                     std::vector<std::size_t> lengths, double min, double max, std::string help) {
  return {.name = std::move(name),
          .type = Type::numbers,
          .fallback = std::move(fallback),
          .help = std::move(help),
          .min = min,
          .max = max,
          .choices = {},
          .lengths = std::move(lengths)};
}

Param Param::whole_numbers(std::string name, std::vector<double> fallback,
                           std::vector<std::size_t> lengths, double min, double max,
                           std::string help) {
  Param param =
      numbers(std::move(name), std::move(fallback), std::move(lengths), min, max, std::move(help));
  param.whole = true;
  return param;
}

Param Param::or_word(std::string text) && {
  word = std::move(text);
  return std::move(*this);
}

Param Param::in(std::string unit_name) && {
  unit = std::move(unit_name);
  return std::move(*this);
}

std::string Param::expects() const {
  switch (type) {
    case Type::boolean:
      return "true or false";
    case Type::integer:
      return (word.empty() ? "" : word + ", or ") + "a whole number" + range(*this) +
             in_unit(*this);
    case Type::number:
      return "a number" + range(*this) + in_unit(*this);
    case Type::text:
      return "text";
    case Type::choice:
      return fmt::format("one of {}", fmt::join(choices, ", "));
    case Type::numbers:
      if (lengths.empty()) return "a list of numbers" + range(*this);
      return fmt::format("a list of {} {}numbers{}", fmt::join(lengths, " or "),
                         whole ? "whole " : "", range(*this));
  }
  return {};
}

Value parse_value(const Param& param, std::string_view text, const std::string& where) {
  const std::string given(text);
  text = trimmed(text);
  switch (param.type) {
    case Param::Type::boolean:
      if (text == "true") return true;
      if (text == "false") return false;
      refuse(param, given, where);
    case Param::Type::integer: {
      if (!param.word.empty() && (text == param.word || text == '"' + param.word + '"'))
        return param.word;
      if (const auto value = parsed<std::int64_t>(text)) return checked(param, *value, where);
      if (auto value = number_with_unit(param, text))
        return checked(param, *std::move(value), where);
      refuse(param, given, where);
    }
    case Param::Type::number: {
      if (const auto value = parsed<double>(text)) return checked(param, *value, where);
      if (auto value = number_with_unit(param, text))
        return checked(param, *std::move(value), where);
      refuse(param, given, where);
    }
    case Param::Type::text:
    case Param::Type::choice:
      if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
        text = text.substr(1, text.size() - 2);
      return checked(param, std::string(text), where);
    case Param::Type::numbers: {
      if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
      std::vector<double> values;
      while (!trimmed(text).empty()) {
        const auto comma = text.find(',');
        const auto value = parsed<double>(trimmed(text.substr(0, comma)));
        if (!value) refuse(param, given, where);
        values.push_back(*value);
        if (comma == std::string_view::npos) break;
        text = text.substr(comma + 1);
      }
      return checked(param, std::move(values), where);
    }
  }
  return {};
}

Value checked(const Param& param, Value value, const std::string& where) {
  using Type = Param::Type;
  if (const auto* text = std::get_if<std::string>(&value);
      text != nullptr && !parsed<double>(*text) && *text != param.word &&
      (param.type == Type::integer || param.type == Type::number))
    if (auto number = number_with_unit(param, *text)) value = *std::move(number);
  if (auto* integer = std::get_if<std::int64_t>(&value);
      integer != nullptr && (param.type == Type::number || param.type == Type::numbers))
    value = static_cast<double>(*integer);
  if (const auto* integer = std::get_if<std::int64_t>(&value);
      integer != nullptr && param.type == Type::choice)  // decode.depth = 16
    value = std::to_string(*integer);
  if (auto* number = std::get_if<double>(&value); number != nullptr && param.type == Type::numbers)
    value = std::vector<double>{*number};

  bool good = false;
  if (std::holds_alternative<bool>(value)) {
    good = param.type == Type::boolean;
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    good = param.type == Type::integer && in_range(param, static_cast<double>(*integer));
  } else if (const auto* number = std::get_if<double>(&value)) {
    good = param.type == Type::number && in_range(param, *number);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    if (!base::is_utf8(*text))
      throw UsageError(fmt::format("{}: {} is not UTF-8", where, param.name),
                       "a recipe is UTF-8 throughout; rename what has such a name");
    good = param.type == Type::text ||
           (param.type == Type::integer && !param.word.empty() && *text == param.word) ||
           (param.type == Type::choice &&
            std::find(param.choices.begin(), param.choices.end(), *text) != param.choices.end());
  } else if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    good = param.type == Type::numbers &&
           std::all_of(list->begin(), list->end(),
                       [&](double v) {
                         return in_range(param, v) && (!param.whole || v == std::floor(v));
                       }) &&
           (param.lengths.empty() || std::find(param.lengths.begin(), param.lengths.end(),
                                               list->size()) != param.lengths.end());
  }
  if (!good) {
    const auto* text = std::get_if<std::string>(&value);
    refuse(param, text != nullptr ? *text : to_toml(value), where);
  }
  return value;
}

std::string to_toml(const Value& value) {
  struct Writer {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const {
      std::string text = fmt::format("{}", v);  // shortest text that parses to the same number
      if (text.find_first_of(".en") == std::string::npos) text += ".0";
      return text;
    }
    std::string operator()(const std::string& v) const {
      std::string text = "\"";
      for (const char c : v) {
        if (c == '"' || c == '\\') text += '\\';
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {  // TOML allows none unescaped
          text += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
          text += c;
        }
      }
      return text + '"';
    }
    std::string operator()(const std::vector<double>& v) const {
      std::string text = "[";
      for (std::size_t i = 0; i < v.size(); ++i) text += (i > 0 ? ", " : "") + (*this)(v[i]);
      return text + "]";
    }
  };
  return std::visit(Writer{}, value);
}

Params::Params(std::span<const Param> declared) {
  for (const Param& param : declared) values_[param.name] = param.fallback;
}

}  // namespace millrace
