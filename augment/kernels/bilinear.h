// What the bilinear kernels share: weights, and how the vector ones pair the taps of a row.
#pragma once

#include <algorithm>

#include "augment/kernels/pixels_x86.h"

namespace millrace {

void add_bilinear_avx2(Kernels& table);
void add_bilinear_avx512(Kernels& table);

namespace {

constexpr int kWeightBits = 11;
constexpr std::uint32_t kOne = 1u << kWeightBits;

#if MILLRACE_X86

// Two taps of a row are read as one piece of memory where all four of every lane are inside, and
// one by one, each with its bounds, where not. A pair of levels and a pair of weights make one
// multiply-and-add of 16-bit numbers; the rest is 32 bits wide.

/// Byte orders that make 16-bit pairs (tap i, tap i + 1) of what was read.
struct PairOrders {
  LaneOrder gray;        ///< of 32 bits: level, level
  LaneOrder red_green;   ///< of 64 bits: two pixels, `apart` bytes from each other
  LaneOrder blue_first;  ///< the blue pair in the lower half of 64 bits
  LaneOrder blue_second;
};

constexpr PairOrders pair_orders(int first, int second) {
  const auto pick = [&](int i, int channel, bool lower) {
    // Bytes 0..3 of a half are level, 0, level, 0.
    if (i % 2 == 1 || (i / 4 % 2 == 0) != lower) return -1;
    return i / 8 * 8 + (i % 4 == 0 ? first : second) + channel;
  };
  PairOrders orders{};
  orders.gray = lane_order([&](int i) {
    return i % 2 == 1 ? -1 : i / 4 * 4 + (i % 4 == 0 ? std::min(first, 1) : std::min(second, 1));
  });
  orders.red_green =
      lane_order([&](int i) { return i % 8 < 4 ? pick(i, 0, true) : pick(i, 1, false); });
  orders.blue_first = lane_order([&](int i) { return pick(i, 2, true); });
  orders.blue_second = lane_order([&](int i) { return pick(i, 2, false); });
  return orders;
}

inline constexpr PairOrders kForward = pair_orders(0, 3);   ///< pixels 3 bytes apart
inline constexpr PairOrders kBackward = pair_orders(3, 0);  ///< mirrored in memory
inline constexpr PairOrders kApart = pair_orders(0, 4);     ///< pixels of 4 bytes

#endif

}  // namespace
}  // namespace millrace
