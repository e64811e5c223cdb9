// Gaussian smoothing in two one-dimensional passes. Borders are mirrored without repeating the
// outermost element (torch's "reflect"). Sums use single precision in a fixed order: equal on every
// machine, and within rounding of torchvision's two-dimensional sum.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/millrace.hpp"

namespace millrace::augment {

/// Returns an index of -n..2n and beyond, mirrored into 0..n-1.
constexpr int mirrored(int i, int n) {
  if (n == 1) return 0;
  const int period = 2 * (n - 1);
  i %= period;
  if (i < 0) i += period;
  return i < n ? i : period - i;
}

/// Weights along one axis: 2 * radius + 1 of them, where [0] is the middle one and [j] lies j away.
struct SmoothingWeights {
  int radius = 0;
  float* at = nullptr;
};

/// Writes radius + 1 weights of a Gaussian cut off at `radius`; the full kernel sums up to 1.
SmoothingWeights gaussian_weights(int radius, double sigma, float* room);

/// Rows and columns of elements, smoothed row by row. `step` elements lie from one column to the
/// next (the channels of an interleaved image).
struct SmoothingPlan {
  int width, height, step;
  SmoothingWeights x, y;

  std::size_t row() const {
    return static_cast<std::size_t>(width) * static_cast<std::size_t>(step);
  }
  /// Returns the number of smoothed rows to keep: those that one output row depends on.
  int kept() const { return 2 * y.radius + 1 < height ? 2 * y.radius + 1 : height; }
  /// Returns the bytes of scratch that smooth() needs.
  std::size_t scratch() const;
};

/// Smooths 8-bit levels in place; rounds to nearest, halves to even.
void smooth(const SmoothingPlan& plan, std::uint8_t* levels, std::ptrdiff_t row_bytes,
            void* scratch);
/// Smooths elements in place, row after row.
void smooth(const SmoothingPlan& plan, float* elements, void* scratch);

}  // namespace millrace::augment
