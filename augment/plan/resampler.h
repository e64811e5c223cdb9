// The levels of a pass's output, strip by strip.
#pragma once

#include <optional>

#include "augment/kernels/kernels.h"
#include "augment/plan/reducer.h"
#include "augment/plan/resample.h"

namespace millrace::augment {

class Resampler {
 public:
  /// Both must outlive it.
  Resampler(const Pass& pass, ResampleScratch& scratch);

  /// All pixels of output rows [y0, y1).
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
  ImageView moved_;      ///< none, and reductions that were turned: where pixels come from
  WarpBlock warp_;       ///< nearest, bilinear
  bool stored_ = false;  ///< positions are stored row by row
  std::optional<Reducer> reducer_;
};

}  // namespace millrace::augment
