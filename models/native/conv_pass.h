// Common form of a convolution's forward pass and its backward pass to the input: a correlation of
// an image with padding (cropped if negative) and with zeros inserted between pixels.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "models/native/conv_kernels.h"

namespace millrace::train::native {

struct ConvPass {
  std::int64_t in = 1, out = 1, groups = 1;
  Pair image;  ///< size of the input
  Pair output;
  Pair kernel, stride, dilation, padding, insert;

  /// Returns the window that outputs of rows [row, row + rows) read.
  Window window(std::int64_t row, std::int64_t rows) const;
  /// Returns the rows per band, a multiple of `multiple`, so that packed blocks fit the L2 cache.
  std::int64_t band_rows(std::int64_t bytes_a_number, std::int64_t multiple) const;
};

ConvPass forward_pass(const ConvGeometry& geometry);
/// Returns the pass from output gradients to input gradients: with the kernel rotated, and the
/// stride's gaps filled with zeros.
ConvPass input_pass(const ConvGeometry& geometry);

/// Returns the weights in the order in which `correlate` reads them: tile after tile of output
/// channels (kChannelTiles), and in each tile [channel][ky][kx][output channel of the tile].
template <class T>
std::vector<T> tile_forward(const ConvGeometry& geometry, const T* weight);
template <class T>
std::vector<T> tile_turned(const ConvGeometry& geometry, const T* weight);

/// Memory for packed blocks.
template <class T>
class Block {
 public:
  explicit Block(std::int64_t count) : data_(allocate(count)) {}
  T* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  static T* allocate(std::int64_t count) {
    constexpr std::size_t kAlignment = 64;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    void* const data = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
    if (data == nullptr) throw std::bad_alloc();
    return static_cast<T*>(data);
  }

  std::unique_ptr<T, Free> data_;
};

}  // namespace millrace::train::native
