// Folds the warps of a chain into one pass over the pixels, without reading any. Index moves before
// the resampling become a view of the source, and those after it a change of the output's axes;
// both are exact. Maps of interpolating warps are multiplied. The windows of all ops are kept, so
// that what a crop removed stays removed.
#pragma once

#include <array>
#include <cstdint>

#include "augment/kernels/pass.h"
#include "millrace/millrace.hpp"

namespace millrace::augment {

/// Returns the move x -> first(next(x)): `next` is nearer to the output.
IndexMove composed(const IndexMove& first, const IndexMove& next);
/// Returns the indices that `move` takes into `rect`.
Rect pulled_back(const Rect& rect, const IndexMove& move);
/// Returns the indices to which `move` takes those in `rect`.
Rect moved(const Rect& rect, const IndexMove& move);
/// Returns the view whose pixel (x, y) is the image's pixel at move(x, y): a change of strides.
ImageView viewed(const ImageView& image, const IndexMove& move, Size size);
/// Returns a warp with MILLRACE_INDEX as a move. Throws BadUse if it is none.
IndexMove to_move(const millrace_warp& warp);

class Fold {
 public:
  /// Starts with nothing folded: the source unchanged.
  explicit Fold(Size source);

  /// Adds an op behind those folded so far. Returns false, and changes nothing, if the op needs a
  /// pass of its own. `compose` allows interpolating warps to be multiplied.
  bool add(const millrace_warp& warp, bool compose = true);

  Size source() const { return source_; }
  Size output() const { return pass_.output; }
  /// Returns whether no op has changed anything yet.
  bool is_empty() const { return is_empty_; }
  Filter filter() const { return pass_.filter; }

  /// Returns the part of the source that the pass reads; at least one pixel.
  Rect region() const;
  /// Sets the source's scale to 1 / 2^scale of its sides, rounded up. Requires max_scale() >=
  /// scale: the fold holds a reduction, with nothing but crops and flips before it.
  void shrink_source(int scale);
  /// Returns the largest scale that leaves work to the reduction, or 0 if the decoder cannot scale.
  int max_scale() const;

  /// Returns the pass over a view of the whole source, of which `held` (at least region()) is in
  /// memory.
  Pass pass(const ImageView& source, const Rect& held) const;
  /// Returns the pass over a view whose source is in memory as a whole.
  Pass pass(const ImageView& source) const {
    return pass(source, {0, 0, source.width, source.height});
  }

 private:
  bool add_move(const IndexMove& move, const Rect& window, const Fill& fill, Size output);
  bool add_reduction(const millrace_warp& warp);
  bool add_warp(const millrace_warp& warp, bool compose);

  Size source_;
  bool is_empty_ = true;
  IndexMove before_;  ///< maps the pass's source frame to the source's pixels
  Pass pass_;         ///< pass() fills in its source
};

}  // namespace millrace::augment
