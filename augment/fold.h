// Folds the warps of a chain into one pass over the pixels. Index moves before the resampling
// become a view of the source, those after it a change of the output's axes, both exact; the
// windows of all ops are kept, so that what a crop removed stays removed.
#pragma once

#include <array>
#include <cstdint>

#include "pipeline/image.h"

namespace millrace {

/// An 8-bit colour for pixels that come from nowhere.
using Fill = std::array<std::uint8_t, 4>;

enum class Filter {
  none,      ///< an index move: every output pixel is one input pixel (or fill), bit for bit
  nearest,   ///< the pixel whose square holds the position
  bilinear,  ///< two taps an axis, not antialiased
};

/// Positions outside `rect` show `fill`.
struct Bound {
  Rect rect;
  Fill fill;
};

/// A fixed-size list of bounds, walked in order: the first one a position leaves decides.
class Bounds {
 public:
  static constexpr int kMost = 12;
  void push_front(const Bound& bound);
  int size() const { return size_; }
  bool full() const { return size_ == kMost; }
  Bound& operator[](int i) { return at_[static_cast<std::size_t>(i)]; }
  const Bound& operator[](int i) const { return at_[static_cast<std::size_t>(i)]; }
  const Bound* begin() const { return at_.data(); }
  const Bound* end() const { return at_.data() + size_; }

 private:
  std::array<Bound, kMost> at_;
  int size_ = 0;
};

/// x -> scale * x + offset on pixel indices; scale is 1 or -1.
struct IndexMove {
  int scale = 1;
  int offset = 0;
  int operator()(int x) const { return scale * x + offset; }
};

/// One pass: output pixel -> (x move, y move) -> [warp] -> source frame.
struct Pass {
  explicit Pass(const ImageView& image);

  ImageView source;  ///< (0, 0) is the source frame's origin; reach it only inside all bounds
  Size output;
  Filter filter = Filter::none;
  std::array<double, 6> map{1, 0, 0, 0, 1, 0};  ///< filter != none: moved output to source frame
  IndexMove move_x, move_y;                     ///< filter != none: output to the warp's output
  Bounds outer;                                 ///< in the output's frame (filter != none)
  Bounds inner;                                 ///< in the source frame

  /// Adds an op behind those folded so far. False, and nothing changed, where it needs a pass of
  /// its own.
  bool add(const Warp& warp);

 private:
  bool add_move(const Warp& warp);
};

}  // namespace millrace
