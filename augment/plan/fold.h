// Folds the warps of a chain into one pass over the pixels, without seeing any. Index moves before
// the resampling become a view of the source, those after it a change of the output's axes, both
// exact; maps of real warps are multiplied; and the windows of all ops are kept, so that what a
// crop removed stays removed.
#pragma once

#include <array>
#include <cstdint>

#include "augment/plan/pass.h"
#include "millrace/millrace.hpp"

namespace millrace::augment {

/// `first` after `next` seen from the output: x -> first(next(x)).
IndexMove composed(const IndexMove& first, const IndexMove& next);
/// The indices that `move` takes into `rect`.
Rect pulled_back(const Rect& rect, const IndexMove& move);
/// Where `move` takes the indices in `rect`.
Rect moved(const Rect& rect, const IndexMove& move);
/// The image whose pixel (x, y) is image's at move(x, y): a change of strides.
ImageView viewed(const ImageView& image, const IndexMove& move, Size size);
/// A warp with MILLRACE_INDEX as a move; throws BadUse where it is none.
IndexMove to_move(const millrace_warp& warp);

class Fold {
 public:
  /// Nothing folded: the source as it is.
  explicit Fold(Size source);

  /// Adds an op behind those folded so far. False, and nothing changed, where it needs a pass of
  /// its own. `compose`: real warps may be multiplied.
  bool add(const millrace_warp& warp, bool compose = true);

  Size source() const { return source_; }
  Size output() const { return pass_.output; }
  /// No op has changed anything yet.
  bool is_empty() const { return is_empty_; }
  Filter filter() const { return pass_.filter; }

  /// The part of the source that the pass reads; at least one pixel.
  Rect region() const;
  /// From now on the source comes at 1 / 2^scale of its sides, rounded up. Only before the first
  /// window is known to hold: for a reduction without anything but itself (max_scale() > 0).
  void shrink_source(int scale);
  /// The largest scale that leaves the reduction something to do; 0 where nothing can be left to a
  /// decoder.
  int max_scale() const;

  /// The pass over a view of the whole source, of which `held` is in memory: at least region().
  Pass pass(const ImageView& source, const Rect& held) const;
  /// The pass over a view whose source is in memory as a whole.
  Pass pass(const ImageView& source) const {
    return pass(source, {0, 0, source.width, source.height});
  }

 private:
  bool add_move(const IndexMove& move, const Rect& window, const Fill& fill, Size output);
  bool add_reduction(const millrace_warp& warp);
  bool add_warp(const millrace_warp& warp, bool compose);

  Size source_;
  bool is_empty_ = true;
  IndexMove before_;  ///< the pass's source frame to the source's pixels
  Pass pass_;         ///< its source is filled in by pass()
};

}  // namespace millrace::augment
