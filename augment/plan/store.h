// The last step of every chain: converts levels 0..255 of a channel to elements of the batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "augment/kernels/kernels.h"
#include "millrace/transform.h"

namespace millrace::augment {

/// Converts levels and lays them out.
class Store {
 public:
  /// Makes the tables. `mean` and `std` hold one number for all channels or one per channel, on the
  /// scale 0..1. Throws UsageError if MILLRACE_SIMD names a level that this processor does not
  /// support.
  Store(DType dtype, Layout layout, int channels, const std::vector<double>& mean,
        const std::vector<double>& std);

  DType dtype() const { return dtype_; }
  Layout layout() const { return layout_; }
  int channels() const { return channels_; }
  /// Returns (level / 255 - mean) / std for each level, rounded as f32 arithmetic does (bit for bit
  /// torchvision's ToTensor and Normalize). f16 and bf16 elements are these rounded to nearest,
  /// halves to even.
  const float* levels(int channel) const {
    return levels_[static_cast<std::size_t>(channel)].data();
  }

  /// Writes a sample of floats, height x width x channels: (value - mean) / std, or with u8 the
  /// nearest of 256 levels from 0 to 1.
  void floats(const float* values, Size size, std::byte* out) const;

  /// Writes rows [y0, y1) of a sample of `size` that starts at `out`. `tile` holds them in this
  /// store's layout: (y1 - y0) x width x channels, or channels x (y1 - y0) x width. `tables`, one
  /// per channel or null, is applied first.
  void rows(const std::uint8_t* tile, Size size, int y0, int y1, const LevelTable* tables,
            std::byte* out) const;

 private:
  DType dtype_;
  Layout layout_;
  int channels_;
  bool same_;  ///< all channels share one table
  std::vector<std::array<float, 256>> levels_;
  std::vector<ElementTable> elements_;
  std::vector<float> stds_;
};

/// Returns the bits of `value` rounded to nearest, halves to even (exported for tests).
std::uint16_t to_f16(float value);
std::uint16_t to_bf16(float value);

}  // namespace millrace::augment
