// Folds the warps of a chain into one pass over the pixels. Index moves before the resampling
// become a view of the source, those after it a change of the output's axes, both exact; the
// windows of all ops are kept, so that what a crop removed stays removed.
#pragma once

#include "augment/pass.h"
#include "augment/warp.h"

namespace millrace {

/// A pass that ops are added to.
struct FoldedPass : Pass {
  explicit FoldedPass(const ImageView& image);

  /// Adds an op behind those folded so far. False, and nothing changed, where it needs a pass of
  /// its own.
  bool add(const Warp& warp);

 private:
  bool add_move(const Warp& warp);
};

}  // namespace millrace
