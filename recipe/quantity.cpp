#include "recipe/quantity.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <numeric>
#include <system_error>

namespace millrace::recipe {
namespace {

enum class Kind { bytes, time };

/// One unit is `numerator` / `denominator` bytes or seconds. Integers, so that a conversion between
/// decimal units rounds once: 0.02s and 20ms are the same number.
struct MeasureUnit {
  std::string_view name;
  Kind kind;
  std::uint64_t numerator;
  std::uint64_t denominator;
};

constexpr std::uint64_t kKilo = 1000;
constexpr std::uint64_t kKibi = 1024;

constexpr std::array kUnits{
    MeasureUnit{"B", Kind::bytes, 1, 1},
    MeasureUnit{"kB", Kind::bytes, kKilo, 1},
    MeasureUnit{"MB", Kind::bytes, kKilo* kKilo, 1},
    MeasureUnit{"GB", Kind::bytes, kKilo* kKilo* kKilo, 1},
    MeasureUnit{"TB", Kind::bytes, kKilo* kKilo* kKilo* kKilo, 1},
    MeasureUnit{"KiB", Kind::bytes, kKibi, 1},
    MeasureUnit{"MiB", Kind::bytes, kKibi* kKibi, 1},
    MeasureUnit{"GiB", Kind::bytes, kKibi* kKibi* kKibi, 1},
    MeasureUnit{"TiB", Kind::bytes, kKibi* kKibi* kKibi* kKibi, 1},
    MeasureUnit{"ns", Kind::time, 1, kKilo* kKilo* kKilo},
    MeasureUnit{"us", Kind::time, 1, kKilo* kKilo},
    MeasureUnit{"ms", Kind::time, 1, kKilo},
    MeasureUnit{"s", Kind::time, 1, 1},
    MeasureUnit{"min", Kind::time, 60, 1},
    MeasureUnit{"h", Kind::time, 3600, 1},
};

constexpr std::string_view kPerSecond = "/s";

/// Removes a final "/s" from a rate of bytes. Returns whether there was one.
bool take_per_second(std::string_view& name) {
  if (name == kPerSecond || !name.ends_with(kPerSecond)) return false;
  name.remove_suffix(kPerSecond.size());
  return true;
}

const MeasureUnit* find_unit(std::string_view name) {
  if (name == "µs") name = "us";
  if (name == "KB") name = "kB";
  if (name == "bytes") name = "B";
  for (const MeasureUnit& unit : kUnits)
    if (unit.name == name) return &unit;
  return nullptr;
}

/// Returns `value` of the unit `from` in the unit `to`, or nothing if they differ in kind.
std::optional<double> converted(double value, std::string_view from, std::string_view to) {
  if (take_per_second(from) != take_per_second(to)) return std::nullopt;
  const MeasureUnit* const one = find_unit(from);
  const MeasureUnit* const other = find_unit(to);
  if (one == nullptr || other == nullptr || one->kind != other->kind) return std::nullopt;
  std::uint64_t numerator = one->numerator * other->denominator;
  std::uint64_t denominator = one->denominator * other->numerator;
  const std::uint64_t common = std::gcd(numerator, denominator);
  numerator /= common;
  denominator /= common;
  return value * static_cast<double>(numerator) / static_cast<double>(denominator);
}

}  // namespace

std::optional<double> quantity_in(std::string_view unit, std::string_view text) {
  double value{};
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc()) return std::nullopt;
  std::string_view suffix = text.substr(static_cast<std::size_t>(stop - text.data()));
  while (suffix.starts_with(' ')) suffix.remove_prefix(1);
  if (suffix.empty() || suffix == unit) return value;
  return converted(value, suffix, unit);
}

std::string units_like(std::string_view unit) {
  const bool rate = take_per_second(unit);
  const MeasureUnit* const known = find_unit(unit);
  if (known == nullptr) return {};
  std::string names;
  for (const MeasureUnit& other : kUnits) {
    if (other.kind != known->kind) continue;
    names += (names.empty() ? "" : ", ") + std::string(other.name);
    if (rate) names += kPerSecond;
  }
  return names;
}

}  // namespace millrace::recipe
