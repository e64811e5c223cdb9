// The inner loops of the CPU's convolution, one table of them an instruction set and element type.
//
// They work on `lanes` samples at a time, one a lane: a packed block is [channels][rows][columns]
// [lanes], 64-byte aligned. Every kernel size, stride, dilation and image side then vectorises
// alike, without remainders; with few channels and small images nothing else fills wide vectors.
#pragma once

#include <array>
#include <cstdint>

#include "base/simd.h"
#include "models/native/geometry.h"

namespace millrace::train::native {

/// What a packed block shows of a tensor: rows [row, row + rows) and columns [column, column +
/// columns) of its channels, zeros outside. Coordinates are those of the image with `insert` - 1
/// zeros put between neighbours (1: the image itself), and may be negative.
struct Window {
  std::int64_t channels = 0;
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t column = 0;
  std::int64_t columns = 0;
  Pair image;  ///< before zeros are put in
  Pair insert;

  std::int64_t pixels() const { return channels * rows * columns; }
};

/// Correlates a packed block: output (o, y, x) takes taps at row y * stride.h + ky * dilation.h and
/// the like of the input.
template <class T>
struct Correlation {
  const T* in = nullptr;
  Window window;               ///< of `in`; window.row is that of output row 0, tap 0
  const T* weights = nullptr;  ///< as tile_weights() orders them
  const T* bias = nullptr;     ///< one an output channel, or null
  T* out = nullptr;            ///< packed: out_channels, rows, columns
  std::int64_t out_channels = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t groups = 1;
  Pair kernel, stride, dilation;
};

/// Adds the gradients of weight (and bias, unless null) that a packed block gives.
template <class T>
struct WeightGradient {
  const T* in = nullptr;
  Window window;                ///< of `in`; window.row is that of output row 0, tap 0
  const T* gradient = nullptr;  ///< packed, of the output: out_channels, rows, columns
  std::int64_t out_channels = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t groups = 1;
  Pair kernel, stride, dilation;
  T* weight = nullptr;  ///< out_channels x in / groups x kernel
  T* bias = nullptr;    ///< out_channels
};

/// Output channels are taken in tiles of these sizes, greedily.
inline constexpr std::array<std::int64_t, 4> kChannelTiles{6, 4, 2, 1};

/// The pixel of a 2x2 window that won, or that none is above 0.
inline constexpr std::uint8_t kNoWinner = 4;

template <class T>
struct ConvKernels {
  std::int64_t lanes;
  /// Samples [0, used) of `from` (its data is the first one's), zeros in the other lanes.
  void (*pack)(const View<const T>& from, std::int64_t used, const Window& window, T* block);
  /// The reverse: rows [row, row + rows) of the image `to`, whose width is the block's.
  void (*unpack)(const T* block, std::int64_t used, const Window& window, const View<T>& to);
  void (*correlate)(const Correlation<T>& job);
  void (*add_weight_gradient)(const WeightGradient<T>& job);
  /// max(0, the largest of each 2x2 window) of packed channels x rows x columns (odd last rows and
  /// columns are left out), and which one it was; NaN wins, the last of several.
  /// `winners` of a channel lie `winner_step` after those of the one before.
  void (*relu_pool)(const T* block, std::int64_t channels, Pair size, T* pooled,
                    std::uint8_t* winners, std::int64_t winner_step);
  /// The gradient in front of relu_pool: `window` shows it, its image's sides are even; `pooled`
  /// is the packed gradient behind it, whole images of half the sides.
  void (*unpool)(const T* pooled, const std::uint8_t* winners, const Window& window, T* block);
};

/// Those of one level, which the processor must be able to do. T: float, double.
template <class T>
const ConvKernels<T>& conv_kernels(base::Simd level);

}  // namespace millrace::train::native
