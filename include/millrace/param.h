// Declared parameters: name, type, range, default and help in one place. Values are checked,
// effective recipes are written and help is printed from a declaration. Recipe keys and the
// parameters of augmentations are both declared this way.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "millrace/export.h"

namespace millrace {

/// The value of a parameter, in the alternative that belongs to its type: choice uses std::string,
/// numbers uses std::vector<double>.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<double>>;

/// Declares one parameter. Build it with the functions below.
struct MILLRACE_EXPORT Param {
  enum class Type { boolean, integer, number, text, choice, numbers };

  std::string name;  ///< "degrees"; for recipe keys the dotted path
  Type type = Type::text;
  Value fallback;    ///< the default
  std::string help;  ///< one line, units included
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices;    ///< allowed values (type choice)
  bool whole = false;                  ///< rejects fractions (type numbers)
  std::vector<std::size_t> lengths{};  ///< allowed lengths (type numbers); empty: any
  std::string word{};                  ///< accepted as text in place of the number (type integer)
  /// Unit of the number (types integer and number), as "ms", "MB/s" or "steps". A value may carry
  /// it, or another unit of bytes, bytes per second or time where the unit is one of these.
  std::string unit{};

  /// Return a declaration of each type. Ranges include both ends; empty `lengths` allow any number.
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

  /// Returns the declaration with a word that is accepted in place of the number.
  Param or_word(std::string text) &&;
  /// Returns the declaration with the number's unit.
  Param in(std::string unit_name) &&;

  /// Returns a description of the valid values for messages: "auto, or a whole number from 0 to
  /// 256".
  std::string expects() const;
};

/// Parses a value as given on a command line, converts it to the parameter's unit and checks it:
/// 20ms is 0.02 for a parameter in s. Throws UsageError that begins with `where`.
MILLRACE_EXPORT Value parse_value(const Param& param, std::string_view text,
                                  const std::string& where);
/// Returns `value` converted to the parameter's type if nothing is lost (3 for a number, 15 for a
/// list of numbers, "20ms" for a number in s). Throws UsageError that begins with `where` for a
/// wrong type, a value out of range or text that is not UTF-8.
MILLRACE_EXPORT Value checked(const Param& param, Value value, const std::string& where);
/// Returns the value as TOML: true, 4, 0.5, "text", [1, 2]. Parsing it gives the same value.
MILLRACE_EXPORT std::string to_toml(const Value& value);

/// A complete set of values by name: the defaults of the declarations, overwritten by set().
/// The accessors throw std::out_of_range for an unknown name and std::bad_variant_access for a
/// wrong type. Reading from several threads is safe.
class MILLRACE_EXPORT Params {
 public:
  explicit Params(std::span<const Param> declared);
  /// Sets a value without any check; see checked().
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
