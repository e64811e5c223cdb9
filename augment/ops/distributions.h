// Draws from non-uniform distributions, computed with + - * / sqrt alone (determinism contract).
#pragma once

#include <cmath>

#include "millrace/millrace.hpp"

namespace millrace::augment {

/// Draws from Normal(0, 1) (Box and Muller, "A Note on the Generation of Random Normal Deviates",
/// 1958).
inline double normal_deviate(Draw& draw) {
  const double radius = std::sqrt(-2 * natural_log(1 - draw.uniform()));
  return radius * sincos_degrees(360 * draw.uniform()).cos;
}

/// Draws the natural logarithm of a Gamma(shape, 1) deviate (Marsaglia and Tsang, "A Simple Method
/// for Generating Gamma Variables", 2000). Deviates of small shapes underflow; their logarithms do
/// not.
inline double log_gamma_deviate(double shape, Draw& draw) {
  double log_boost = 0;
  if (shape < 1) {
    log_boost = natural_log(1 - draw.uniform()) / shape;
    shape += 1;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal_deviate(draw);
    const double root = 1 + c * x;
    const double u = 1 - draw.uniform();
    if (root <= 0) continue;
    const double v = root * root * root;
    if (natural_log(u) < 0.5 * x * x + d - d * v + d * natural_log(v))
      return log_boost + natural_log(d * v);
  }
}

/// Draws from Beta(a, b), with a and b positive, as X / (X + Y) of Gamma deviates X and Y.
inline double beta_deviate(double a, double b, Draw& draw) {
  const double log_x = log_gamma_deviate(a, draw);
  const double log_y = log_gamma_deviate(b, draw);
  const double odds = log_y - log_x;
  if (odds > 700) return 0;
  return odds < -700 ? 1.0 : 1 / (1 + exponential(odds));
}

}  // namespace millrace::augment
