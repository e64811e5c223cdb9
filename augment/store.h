// The last step of every chain: a level 0..255 of a channel becomes an element of the batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pipeline/transform.h"

namespace millrace {

/// How levels are converted and laid out.
class Store {
 public:
  /// `mean` and `std` hold one number for all channels or one a channel, on the scale 0..1.
  Store(DType dtype, Layout layout, int channels, const std::vector<double>& mean,
        const std::vector<double>& std);

  DType dtype() const { return dtype_; }
  Layout layout() const { return layout_; }
  /// (level / 255 - mean) / std, rounded as f32 arithmetic does (bit for bit torchvision's
  /// ToTensor and Normalize).
  const float* levels(int channel) const {
    return levels_[static_cast<std::size_t>(channel)].data();
  }

 private:
  DType dtype_;
  Layout layout_;
  std::vector<std::array<float, 256>> levels_;
};

}  // namespace millrace
