// Numbers in messages: counts with their noun, and shares that are never shown as 0 if they are
// not.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <string>
#include <string_view>

namespace millrace::base {

/// Returns "1 table" or "3 tables".
inline std::string counted(std::integral auto count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Returns a share of 1 as "78%", "2.0%" or, where it is not 0 but rounds to it, "under 0.1%".
/// Shares below 10% have a decimal.
inline std::string percent(double share) {
  if (share != 0 && std::abs(share) < 0.0005) return "under 0.1%";
  if (share == 0) return "0%";
  return std::abs(share) < 0.0995 ? fmt::format("{:.1f}%", 100 * share)
                                  : fmt::format("{:.0f}%", 100 * share);
}

/// Returns a number with `digits` decimals. Where it is not 0 but rounds to it, returns "under" the
/// smallest number that does not, such as "under 0.1". Never "-0.0".
inline std::string decimal(double number, int digits) {
  const double least = std::pow(10, -digits);
  if (number == 0) return fmt::format("{:.{}f}", 0.0, digits);
  if (std::abs(number) < least / 2) return fmt::format("under {:.{}f}", least, digits);
  return fmt::format("{:.{}f}", number, digits);
}

/// Returns a share of 1 in percent with that many decimals, as decimal() does: "42.0%".
inline std::string percent(double share, int digits) { return decimal(100 * share, digits) + "%"; }

/// Returns a relative difference as "+0.7%" or "-12.0%". One that rounds to 0 is "under 0.1%".
inline std::string signed_percent(double share) {
  if (share == 0) return "0%";
  return std::abs(share) < 0.0005 ? "under 0.1%" : fmt::format("{:+.1f}%", 100 * share);
}

}  // namespace millrace::base
