// Labels of ops that mix pairs of a batch.
#pragma once

#include <cstddef>

#include "millrace/millrace.hpp"

namespace millrace::augment {

/// Mixes two neighbours' labels: `part` of the own, the rest of the other's.
inline void mix_labels(const Pair& pair, double part) {
  const auto own = static_cast<float>(part), other = static_cast<float>(1 - part);
  for (std::int32_t i = 0; i < pair.sample.classes; ++i) {
    const float a = pair.first_labels[i], b = pair.second_labels[i];
    pair.first_labels[i] = b * other + a * own;
    pair.second_labels[i] = a * other + b * own;
  }
}

}  // namespace millrace::augment
