// Elementary functions computed from + - * / alone. The last bits of libm's results differ between
// processors, and the draws of an augmentation must not (determinism contract). Compile with
// -ffp-contract=off. All functions are pure and throw nothing.
#pragma once

#include <bit>
#include <cstdint>

namespace millrace {
inline namespace plugin_v1 {

struct SinCos {
  double sin;
  double cos;
};

/// Returns sine and cosine of an angle in degrees, to about 1e-16; exact at multiples of 90.
/// Reduces the angle to [-45, 45] degrees and sums a Taylor series whose first omitted term is <
/// 5e-17.
constexpr SinCos sincos_degrees(double degrees) {
  if (degrees == 0)
    return {degrees, 1};  // shortcut with the same result; an angle of 0 (no shear) is common
  // The reduction is exact: the operands are close and the quotient is a small whole number.
  const double turns = degrees / 90.0;
  const auto quarter = static_cast<long long>(turns + (turns < 0 ? -0.5 : 0.5));
  const double x =
      (degrees - static_cast<double>(quarter) * 90.0) * (3.14159265358979323846 / 180.0);
  const double x2 = x * x;
  double sin = 1;
  double cos = 1;
  for (int n = 16; n >= 2; n -= 2) {
    sin = 1 - x2 / (n * (n + 1)) * sin;
    cos = 1 - x2 / (n * (n - 1)) * cos;
  }
  sin *= x;
  switch (quarter & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

/// Returns the greatest whole number not above `value`, for |value| < 2^63. Avoids std::floor,
/// which is a library call without SSE4.1.
constexpr long long floor_to_whole(double value) {
  const auto towards_zero = static_cast<long long>(value);
  return towards_zero - (value < static_cast<double>(towards_zero) ? 1 : 0);
}

/// Returns the nearest whole number, ties to even, like Python's round and the store's kernels.
constexpr double round_half_even(double value) {
  // Adding 1.5 * 2^52 shifts the fraction out of the mantissa; valid below 2^51.
  constexpr double kMagic = 6755399441055744.0;
  return (value + kMagic) - kMagic;
}

constexpr double kLn2 = 0.69314718055994530942;

/// Returns the natural logarithm of a positive, normal number, to about 1e-16. With x = m * 2^e and
/// m around 1, ln m = 2 artanh((m - 1) / (m + 1)); the series' terms fall below 1e-18 after 12.
constexpr double natural_log(double x) {
  auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000;
  double m = std::bit_cast<double>(bits);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int n = 25; n >= 1; n -= 2) sum = sum * s2 + 1.0 / n;
  return 2 * s * sum + exponent * kLn2;
}

/// Returns e^x for |x| < 700, to about 1e-15: e^x = 2^k e^r with |r| <= ln 2 / 2, and a Taylor
/// series for e^r.
constexpr double exponential(double x) {
  const double k = round_half_even(x / kLn2);
  const double r = x - k * kLn2;
  double sum = 1;
  for (int n = 16; n >= 1; --n) sum = 1 + r / n * sum;
  const auto power = static_cast<std::uint64_t>(static_cast<std::int64_t>(k) + 1023) << 52;
  return sum * std::bit_cast<double>(power);
}

/// Returns the standard normal distribution function, to about 1e-15, and 0 or 1 outside [-8, 8].
/// Sums the series phi(x) (x + x^3 / 3 + x^5 / (3 * 5) + ...) until it no longer changes
/// (Marsaglia, "Evaluating the Normal Distribution", 2004).
constexpr double normal_cdf(double x) {
  if (x < -8) return 0;
  if (x > 8) return 1;
  constexpr double kLnSqrt2Pi = 0.91893853320467274178;
  double sum = x;
  double term = x;
  for (double last = 0, n = 3; sum != last; n += 2) {
    last = sum;
    term *= x * x / n;
    sum += term;
  }
  return 0.5 + sum * exponential(-0.5 * x * x - kLnSqrt2Pi);
}

}  // namespace plugin_v1
}  // namespace millrace
