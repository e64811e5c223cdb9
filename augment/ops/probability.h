// The parameter p: whether a sample is changed at all.
#pragma once

#include "millrace/millrace.hpp"

namespace millrace::augment {

constexpr Parameter p_param(const char* fallback) {
  return number("p", fallback, 0, 1, "probability that a sample is changed");
}

/// Draws whether this sample is changed, and reports it.
inline bool is_applied(Call& call, double p) {
  const bool applied = call.chance(p);
  call.report("applied", applied);
  return applied;
}

}  // namespace millrace::augment
