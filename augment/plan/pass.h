// A pass over the pixels: the result of folding a chain of geometric augmentations, ready for
// resample().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "millrace/image.h"

namespace millrace::augment {

/// An 8-bit colour for pixels outside the image.
using Fill = std::array<std::uint8_t, 4>;

/// How a level at a position between pixels is computed.
enum class Filter : std::uint8_t {
  none,      ///< an index move: every output pixel is one input pixel (or fill), bit for bit
  nearest,   ///< the pixel whose square holds the position
  bilinear,  ///< two taps per axis, not antialiased
  reduce,    ///< axis-aligned, triangle filter as wide as an output pixel: antialiased
};

/// A rectangle; positions outside it show `fill`.
struct Bound {
  Rect rect;
  Fill fill{};
};

/// A vector of at most kCapacity_ items stored in place. Construction writes only the size, and a
/// copy copies only the items present: passes are made and changed once per sample.
template <class Item, int kCapacity_>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<Item> && std::is_trivially_destructible_v<Item>);

 public:
  static constexpr int kCapacity = kCapacity_;
  InlineVector() = default;
  InlineVector(const InlineVector& other) { *this = other; }
  InlineVector& operator=(const InlineVector& other) {
    if (this == &other) return *this;
    size_ = 0;
    for (const Item& item : other) push_back(item);
    return *this;
  }

  /// Appends an item. The vector must not be full.
  void push_back(const Item& item) { new (place(size_++)) Item(item); }
  void push_front(const Item& item) {
    const Item copy = item;  // may lie in this vector
    for (int i = size_; i > 0; --i) new (place(i)) Item((*this)[i - 1]);
    new (place(0)) Item(copy);
    ++size_;
  }
  void clear() { size_ = 0; }

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == kCapacity; }
  Item& operator[](int i) { return *std::launder(reinterpret_cast<Item*>(place(i))); }
  const Item& operator[](int i) const {
    return *std::launder(reinterpret_cast<const Item*>(place(i)));
  }
  Item* begin() { return std::launder(reinterpret_cast<Item*>(place(0))); }
  Item* end() { return begin() + size_; }
  const Item* begin() const { return std::launder(reinterpret_cast<const Item*>(place(0))); }
  const Item* end() const { return begin() + size_; }

 private:
  void* place(int i) { return items_ + static_cast<std::size_t>(i) * sizeof(Item); }
  const void* place(int i) const { return items_ + static_cast<std::size_t>(i) * sizeof(Item); }

  alignas(Item) std::byte items_[sizeof(Item) * kCapacity_];
  int size_ = 0;
};

/// Bounds in order: the first one that a position leaves decides.
using Bounds = InlineVector<Bound, 12>;

/// A bound in a frame between the output and the source, from warps that were multiplied.
struct MappedBound {
  std::array<double, 9> map;  ///< warp's output frame to that frame, continuous, homogeneous
  Bound bound;
};

/// A signed permutation of pixel indices: (x, y) -> (xx x + xy y + x0, yx x + yy y + y0). Exactly
/// one of xx, xy is +-1 and the other 0; likewise yx, yy.
struct IndexMove {
  int xx = 1, xy = 0, x0 = 0;
  int yx = 0, yy = 1, y0 = 0;
};

/// A coordinate farther out than any bound.
inline constexpr int kFarAway = 1 << 20;

/// Maps an output pixel -> (move) -> warp's output pixel -> (map, at pixel centres) -> source
/// frame. A position is tested against `outer` first, then `middle`, then `inner`.
/// Coordinates are continuous (pixel i covers [i, i + 1)). Sides are at most 65,535 pixels, and
/// bounds and moves stay below 2^18.
///
/// With Filter::none, `move` and `map` are identities: moves are folded into `source`'s strides,
/// and `outer` and `middle` are empty.
/// With nearest and bilinear, `inner` holds at least one bound.
/// With reduce, `map` is m0 x + m2, m4 y + m5 with m0, m4 > 0, and `inner` holds one bound: taps
/// are clipped to its rectangle and renormalised, so that no fill is ever mixed in.
struct Pass {
  ImageView source;  ///< (0, 0) is the source frame's origin
  /// The part of the source frame in memory. Nothing else of it is read, not even where the result
  /// does not count. Every tap inside all of `inner` lies in it. By default only the bounds limit
  /// reads.
  Rect held{-kFarAway, -kFarAway, kFarAway, kFarAway};
  Size output;
  Filter filter = Filter::none;
  Border border = Border::constant;  ///< with clamp, `inner` holds one bound, whose fill is unused
  IndexMove move;
  std::array<double, 9> map{1, 0, 0, 0, 1, 0, 0, 0, 1};
  Bounds outer;                         ///< in the output's frame, pixel indices
  InlineVector<MappedBound, 4> middle;  ///< tested at the position of the output pixel's centre
  Bounds inner;                         ///< in the source frame, pixel indices (of taps)
};

}  // namespace millrace::augment
