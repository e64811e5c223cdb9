// Inner loops of the CPU's convolution: one table of functions per instruction set and element
// type.
//
// They work on `lanes` samples at a time, one per lane. A packed block is [channels][rows][columns]
// [lanes], 64-byte aligned. Every kernel size, stride, dilation and image side then vectorises
// alike, without remainders; with few channels and small images nothing else fills wide vectors.
#pragma once

#include <array>
#include <cstdint>

#include "base/simd.h"
#include "models/native/geometry.h"

namespace millrace::train::native {

/// Part of a tensor in a packed block: rows [row, row + rows) and columns [column, column +
/// columns) of its channels, zeros outside. Coordinates are those of the image with `insert` - 1
/// zeros between neighbours (1: the image itself), and may be negative.
struct Window {
  std::int64_t channels = 0;
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t column = 0;
  std::int64_t columns = 0;
  Pair image;  ///< size before zeros are inserted
  Pair insert;

  std::int64_t pixels() const { return channels * rows * columns; }
};

/// Correlates a packed block: output (o, y, x) takes taps at input row y * stride.h + ky *
/// dilation.h, and likewise for columns.
template <class T>
struct Correlation {
  const T* in = nullptr;
  Window window;               ///< window of `in`; window.row corresponds to output row 0, tap 0
  const T* weights = nullptr;  ///< in the order of tile_weights()
  const T* bias = nullptr;     ///< one per output channel, or null
  T* out = nullptr;            ///< packed: out_channels, rows, columns
  std::int64_t out_channels = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t groups = 1;
  Pair kernel, stride, dilation;
};

/// Adds a packed block's gradients of weight and bias (unless null).
template <class T>
struct WeightGradient {
  const T* in = nullptr;
  Window window;                ///< window of `in`; window.row corresponds to output row 0, tap 0
  const T* gradient = nullptr;  ///< packed gradient of the output: out_channels, rows, columns
  std::int64_t out_channels = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t groups = 1;
  Pair kernel, stride, dilation;
  T* weight = nullptr;  ///< out_channels x in / groups x kernel
  T* bias = nullptr;    ///< out_channels
};

/// Tile sizes for output channels, taken greedily.
inline constexpr std::array<std::int64_t, 4> kChannelTiles{6, 4, 2, 1};

/// Winner of a 2x2 window none of whose pixels is above 0; otherwise the winner is a pixel index.
inline constexpr std::uint8_t kNoWinner = 4;

template <class T>
struct ConvKernels {
  std::int64_t lanes;
  /// Packs samples [0, used) of `from`, whose data pointer is the first sample's; zeros in the
  /// other lanes.
  void (*pack)(const View<const T>& from, std::int64_t used, const Window& window, T* block);
  /// Unpacks rows [row, row + rows) of the image `to`, whose width is the block's.
  void (*unpack)(const T* block, std::int64_t used, const Window& window, const View<T>& to);
  void (*correlate)(const Correlation<T>& job);
  void (*add_weight_gradient)(const WeightGradient<T>& job);
  /// Computes max(0, maximum of each 2x2 window) of packed channels x rows x columns (odd last rows
  /// and columns are dropped), and its index. NaN wins, and of several the last. `winners` of
  /// adjacent channels are `winner_step` apart.
  void (*relu_pool)(const T* block, std::int64_t channels, Pair size, T* pooled,
                    std::uint8_t* winners, std::int64_t winner_step);
  /// Computes the gradient before relu_pool. `window` shows it; its image has even sides. `pooled`
  /// is the packed gradient after it: whole images with half the sides.
  void (*unpool)(const T* pooled, const std::uint8_t* winners, const Window& window, T* block);
};

/// Returns the kernels of one level, which the processor must support. T: float, double.
template <class T>
const ConvKernels<T>& conv_kernels(base::Simd level);

// Kernel tables, one per instruction set and type. Each is defined in its own file, such as
// conv_scalar.cpp.

extern const ConvKernels<float> kScalarFloat, kAvx2Float, kAvx512Float;
extern const ConvKernels<double> kScalarDouble, kAvx2Double, kAvx512Double;

}  // namespace millrace::train::native
