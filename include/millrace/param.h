// Declared parameters: type, range, default and help in one place, from which values are checked,
// effective recipes are written and help is printed. Recipe keys and the parameters of
// augmentations are both declared this way.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace {

using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<double>>;

struct Param {
  enum class Type { boolean, integer, number, text, choice, numbers };

  std::string name;  ///< "degrees"; for recipe keys the dotted path
  Type type = Type::text;
  Value fallback;    ///< the default
  std::string help;  ///< one line, units included
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices;    ///< type choice
  bool whole = false;                  ///< type numbers: no fractions
  std::vector<std::size_t> lengths{};  ///< type numbers: how many there may be; empty: any
  std::string word{};  ///< type integer: may stand in a number's place, and is then a text

  static Param boolean(std::string name, bool fallback, std::string help);
  static Param integer(std::string name, std::int64_t fallback, double min, double max,
                       std::string help);
  static Param number(std::string name, double fallback, double min, double max, std::string help);
  static Param text(std::string name, std::string fallback, std::string help);
  static Param choice(std::string name, std::string fallback, std::vector<std::string> choices,
                      std::string help);
  static Param numbers(std::string name, std::vector<double> fallback,
                       std::vector<std::size_t> lengths, double min, double max, std::string help);
  static Param whole_numbers(std::string name, std::vector<double> fallback,
                             std::vector<std::size_t> lengths, double min, double max,
                             std::string help);

  /// The same, with a word that may stand in the number's place.
  Param or_word(std::string text) &&;

  /// "auto, or a whole number from 0 to 256", for messages.
  std::string expects() const;
};

/// Reads a value as it stands on a command line; throws UsageError naming `where`.
Value parse_value(const Param& param, std::string_view text, const std::string& where);
/// Converts where that loses nothing (3 for a number, 15 for a list of numbers) and checks the
/// range; throws UsageError naming `where`.
Value checked(const Param& param, Value value, const std::string& where);
/// As TOML: true, 4, 0.5, "text", [1, 2]. A round trip gives the same value.
std::string to_toml(const Value& value);

/// Values by name, complete: what an augmentation is made from.
class Params {
 public:
  explicit Params(std::span<const Param> declared);
  void set(const std::string& name, Value value) { values_[name] = std::move(value); }

  bool boolean(const std::string& name) const { return std::get<bool>(values_.at(name)); }
  std::int64_t integer(const std::string& name) const {
    return std::get<std::int64_t>(values_.at(name));
  }
  double number(const std::string& name) const { return std::get<double>(values_.at(name)); }
  const std::string& text(const std::string& name) const {
    return std::get<std::string>(values_.at(name));
  }
  const std::vector<double>& numbers(const std::string& name) const {
    return std::get<std::vector<double>>(values_.at(name));
  }
  const Value& at(const std::string& name) const { return values_.at(name); }
  bool operator==(const Params&) const = default;

 private:
  std::map<std::string, Value> values_;
};

}  // namespace millrace
