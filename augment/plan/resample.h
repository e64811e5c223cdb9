// Runs one pass. All coordinates are fixed point and every level is a whole number, so the result
// has the same bytes on every machine and at every SIMD level (determinism contract).
#pragma once

#include <cstddef>
#include <cstdint>

#include "augment/kernels/kernels.h"
#include "augment/kernels/pass.h"
#include "augment/plan/store.h"
#include "millrace/buffer.h"

namespace millrace::augment {

/// Working memory of one thread. It grows with the first samples and is kept.
struct ResampleScratch {
  Buffer tile;       ///< levels on their way to the store; fits the first-level cache
  Buffer positions;  ///< a row of positions that are not linear
  Buffer taps;       ///< weights of a reduction
  Buffer windows;    ///< the same weights in the order of vector kernels
  Buffer rows;       ///< rows between the two axes of a reduction
  Buffer packed;     ///< a source whose strides the kernels do not read
  Buffer turned;     ///< a reduction's output before it is turned by 90 degrees
};

/// Writes the pass's output through `store` to `out`, in the store's layout without gaps
/// (size_of(dtype) bytes per element). `tables`, if not null, holds one table per channel that is
/// applied to levels first: pointwise ops behind the pass.
void resample(const Pass& pass, const Store& store, std::byte* out, ResampleScratch& scratch,
              const LevelTable* tables = nullptr);

/// Writes the pass's output as interleaved 8-bit pixels, for a next pass or op. Writes nothing
/// behind the last pixel, but kernels that read it next need kTailSlack bytes there (Buffer has
/// them).
void resample(const Pass& pass, std::uint8_t* out, ResampleScratch& scratch,
              const LevelTable* tables = nullptr);

// Copies pixels from a view to a canvas unchanged, whatever the strides of both.

/// Sets canvas(x, y) = view(x, y) for the pixels of `rect`.
void move_pixels(const Kernels& kernels, const ImageView& view, const Rect& rect,
                 const Canvas& canvas);

/// Sets all pixels of `rect` to `fill`.
void paint(const Kernels& kernels, const Rect& rect, const Fill& fill, const Canvas& canvas);

/// Runs Filter::reduce: a separable triangle filter as wide as an output pixel (two pixels of the
/// source if it is enlarged). This is the definition of Pillow's and torchvision's antialiased
/// bilinear resize.
class Reducer {
 public:
  /// Prepares the pixels `needed` of the pass's output. `pass.move` must not exchange the axes.
  Reducer(const Pass& pass, const Rect& needed, ResampleScratch& scratch);

  /// Writes output rows [y0, y1) of `needed`.
  void rows(int y0, int y1, const Canvas& canvas) const;

 private:
  void row(int y, int c, int channels, std::uint8_t* out) const;

  const Kernels& kernels_;
  Rect needed_;
  ImageView source_;
  Taps x_, y_;
  Windows windows_;
  int base_ = 0;   ///< first column read, in pixels of memory from the frame's origin
  int width_ = 0;  ///< number of columns read
  std::int16_t* line_ = nullptr;
  std::uint8_t* levels_ = nullptr;  ///< a row of output whose layout still has to change
};

}  // namespace millrace::augment
