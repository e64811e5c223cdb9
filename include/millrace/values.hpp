// Parameters of a unit: their declarations, and the values that an instance is made from. Part of
// millrace.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "millrace/call.hpp"
#include "millrace/millrace.h"
#include "millrace/pixels.hpp"

namespace millrace {
inline namespace plugin_v1 {

using Parameter = millrace_param;
/// Returns the `lengths` of a list of a numbers, or of b, or of c.
constexpr std::uint32_t lengths(int a, int b = -1, int c = -1) {
  const auto bit = [](int n) { return n < 0 ? 0u : 1u << n; };
  return bit(a) | bit(b) | bit(c);
}
/// Declares a boolean parameter. In this and the following functions, `fallback` is the default as
/// written in a recipe.
constexpr Parameter boolean(const char* name, const char* fallback, const char* help) {
  return {name, help, MILLRACE_BOOLEAN, 0, fallback, 0, 1, nullptr};
}
constexpr Parameter integer(const char* name, const char* fallback, double min, double max,
                            const char* help) {
  return {name, help, MILLRACE_INTEGER, 0, fallback, min, max, nullptr};
}
constexpr Parameter number(const char* name, const char* fallback, double min, double max,
                           const char* help) {
  return {name, help, MILLRACE_NUMBER, 0, fallback, min, max, nullptr};
}
constexpr Parameter text(const char* name, const char* fallback, const char* help) {
  return {name, help, MILLRACE_TEXT, 0, fallback, 0, 0, nullptr};
}
/// Declares a choice; `choices` is written "nearest|bilinear".
constexpr Parameter choice(const char* name, const char* fallback, const char* choices,
                           const char* help) {
  return {name, help, MILLRACE_CHOICE, 0, fallback, 0, 0, choices};
}
constexpr Parameter numbers(const char* name, const char* fallback, std::uint32_t lengths,
                            double min, double max, const char* help) {
  return {name, help, MILLRACE_NUMBERS, lengths, fallback, min, max, nullptr};
}
constexpr Parameter integers(const char* name, const char* fallback, std::uint32_t lengths,
                             double min, double max, const char* help) {
  return {name, help, MILLRACE_INTEGERS, lengths, fallback, min, max, nullptr};
}
/// Declares `fill`, the 8-bit colour outside an image, as all geometric units do.
constexpr Parameter fill_param() {
  return integers("fill", "[0]", lengths(1, 3), 0, 255,
                  "level outside the image: one for all channels, or one per channel");
}

/// A view of a list of numbers.
struct Numbers {
  const double* at = nullptr;
  std::size_t count = 0;
  double operator[](std::size_t i) const { return at[i]; }
  std::size_t size() const { return count; }
  double front() const { return at[0]; }
  double back() const { return at[count - 1]; }
};

/// The parameter values of an instance, by declared name. The host has checked them. Valid during
/// construction; reading an undeclared name throws std::logic_error.
class Values {
 public:
  Values(const millrace_create& create, const Parameter* params)
      : create_(create), params_(params) {}
  bool boolean(std::string_view name) const { return of(name).integer != 0; }
  std::int64_t integer(std::string_view name) const { return of(name).integer; }
  double number(std::string_view name) const { return of(name).number; }
  const char* text(std::string_view name) const { return of(name).text; }
  Numbers numbers(std::string_view name) const { return {of(name).numbers, of(name).count}; }
  /// Writes the levels of fill_param(); a single level goes to every channel.
  void fill(std::uint8_t (&fill)[4]) const {
    const Numbers levels = numbers("fill");
    for (std::size_t c = 0; c < 4; ++c)
      fill[c] = static_cast<std::uint8_t>(levels.count == 1  ? levels[0]
                                          : c < levels.count ? levels[c]
                                                             : 0);
  }
  /// Returns the value of the choice `interpolation`: nearest or bilinear.
  Interpolation interpolation() const {
    return std::string_view(text("interpolation")) == "nearest" ? Interpolation::nearest
                                                                : Interpolation::bilinear;
  }
  /// Returns output.mean, one number or one per channel; 0 if there is no output.
  Numbers mean() const {
    static constexpr double kNone = 0;
    return create_.mean != nullptr ? Numbers{create_.mean, create_.mean_count} : Numbers{&kNone, 1};
  }
  /// Returns output.std, one number or one per channel; 1 if there is no output.
  Numbers std() const {
    static constexpr double kNone = 1;
    return create_.std != nullptr ? Numbers{create_.std, create_.std_count} : Numbers{&kNone, 1};
  }
  /// Readers: return data.path and data.split.
  const char* path() const { return create_.path; }
  const char* split() const { return create_.split; }

 private:
  const millrace_value& of(std::string_view name) const {
    for (std::size_t i = 0; i < create_.value_count; ++i)
      if (name == params_[i].name) return create_.values[i];
    throw std::logic_error("parameter '" + std::string(name) + "' is read but not declared");
  }
  const millrace_create& create_;
  const Parameter* params_;
};

/// Makes instances of other units for a choice.
class Children {
 public:
  explicit Children(const millrace_create& create) : create_(create) {}
  /// Makes an instance, written as in a recipe ("posterize{bits=4}"). Returns its index for
  /// Chosen::add(). Throws BadUse.
  std::uint32_t add(const std::string& unit) {
    const std::int32_t place = create_.child(&create_, unit.c_str());
    if (place < 0) throw BadUse(create_.error);
    return static_cast<std::uint32_t>(place);
  }

 private:
  const millrace_create& create_;
};

}  // namespace plugin_v1
}  // namespace millrace
