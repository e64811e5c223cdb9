// Runs Filter::reduce: a separable triangle filter as wide as an output pixel (two pixels of the
// source if it is enlarged). This is the definition of Pillow's and torchvision's antialiased
// bilinear resize.
#pragma once

#include "augment/kernels/kernels.h"
#include "augment/plan/resample.h"

namespace millrace::augment {

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
