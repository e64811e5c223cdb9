// Computes the levels of a pass's output, strip by strip.
#pragma once

#include <optional>

#include "augment/kernels/kernels.h"
#include "augment/plan/reducer.h"
#include "augment/plan/resample.h"

namespace millrace::augment {

class Resampler {
 public:
  /// `pass` and `scratch` must outlive it.
  Resampler(const Pass& pass, ResampleScratch& scratch);

  /// Writes all pixels of output rows [y0, y1).
  void rows(int y0, int y1, const Canvas& canvas);

 private:
  void prepare_warp();
  void prepare_turned();
  void warp_rows(const Rect& rect, const Canvas& canvas);
  void store_positions(const Rect& row);
  void paint_middle(const Rect& rect, const Canvas& canvas) const;

  const Pass& pass_;
  ResampleScratch& scratch_;
  const Kernels* kernels_;
  Rect needed_;          ///< output pixels inside all outer bounds
  ImageView moved_;      ///< source of the pixels for Filter::none and turned reductions
  WarpBlock warp_;       ///< for nearest and bilinear
  bool stored_ = false;  ///< positions are stored row by row
  std::optional<Reducer> reducer_;
};

}  // namespace millrace::augment
