// The map that a chain applied to one image, so that boxes, masks and key points can follow it.
#pragma once

#include <array>

#include "millrace/millrace.hpp"

namespace millrace::augment {

/// Collects the maps of a chain's geometric ops.
class WarpMap {
 public:
  /// Adds the next op's warp.
  void add(const millrace_warp& warp);
  /// Notes an op that moves pixels as no homography does, or in an unknown way.
  void lose() { exists_ = false; }

  /// Returns W with x_out = W x_in, row by row, homogeneous, at pixel centres: (0, 0) is the centre
  /// of the first pixel. All NaN if no such map exists.
  std::array<float, 9> forward() const;

 private:
  std::array<double, 9> map_{1, 0, 0, 0, 1, 0, 0, 0, 1};  ///< output to input, continuous
  bool exists_ = true;
};

}  // namespace millrace::augment
