// Elementary functions from + - * / alone: libm's last bits differ between processors, and what an
// augmentation draws may not (contract C1).
#pragma once

#include <cmath>

namespace millrace {

struct SinCos {
  double sin;
  double cos;
};

/// Sine and cosine of an angle in degrees, to about 1e-16; exact at multiples of 90.
/// Taylor series after reduction to [-45, 45] degrees, where the first term left out is < 5e-17.
constexpr SinCos sincos_degrees(double degrees) {
  // The reduction is exact: both operands are close and the quotient is a small whole number.
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

/// The greatest whole number that is not above `value`, for |value| < 2^63. Without SSE4.1 the
/// library's floor is a call.
constexpr long long floor_to_whole(double value) {
  const auto towards_zero = static_cast<long long>(value);
  return towards_zero - (value < static_cast<double>(towards_zero) ? 1 : 0);
}

/// Nearest whole number, halves to even (what Python's round and the pixel stores do).
constexpr double round_half_even(double value) {
  // 1.5 * 2^52 pushes the fraction out of the mantissa; valid below 2^51.
  constexpr double kMagic = 6755399441055744.0;
  return (value + kMagic) - kMagic;
}

}  // namespace millrace
