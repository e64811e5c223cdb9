// The parameter p, the probability that a sample is changed.
#pragma once

#include "millrace/millrace.hpp"

namespace millrace::augment {

constexpr Parameter p_param(const char* fallback) {
  return number("p", fallback, 0, 1, "probability that a sample is changed");
}

/// Draws whether this sample is changed, and reports the draw.
inline bool is_applied(Call& call, double p) {
  const bool applied = call.chance(p);
  call.report("applied", applied);
  return applied;
}

}  // namespace millrace::augment
