// Filter::bilinear: two taps per axis. Weights have 11 bits, products of two have 22. The sum is
// exact in 32 bits and rounded once, halves to even.
#include <algorithm>
#include <cstring>

#include "augment/kernels/pixels_x86.h"
#include "augment/kernels/warp_positions.h"

namespace millrace::augment {
namespace {

constexpr int kWeightBits = 11;
constexpr std::uint32_t kOne = 1u << kWeightBits;

/// Returns a sum of levels with weights that add up to 2^22, rounded half to even.
std::uint8_t rounded(std::uint32_t sum) {
  return static_cast<std::uint8_t>((sum + (1u << 21) - 1 + (sum >> 22 & 1)) >> 22);
}

template <int kChannels>
void bilinear(const WarpBlock& shared, const Rect& rect, const Canvas& shared_canvas) {
  const WarpBlock warp = shared;  // a copy, which writing pixels cannot seem to change
  const Canvas canvas = shared_canvas;
  // Round to the 11 bits of weights before splitting the position, so that a 1 carries over.
  const int shift = warp.bits - kWeightBits;
  const std::int32_t round = 1 << (shift - 1);
  const Rect in = warp.inside;
  for (int y = rect.y0; y < rect.y1; ++y) {
    const RowPositions at(warp, y);
    std::uint8_t* out = canvas.at(rect.x0, y);
    for (int x = rect.x0; x < rect.x1; ++x, out += canvas.pixel) {
      const std::int32_t u = (at.u(x) + round) >> shift;
      const std::int32_t v = (at.v(x) + round) >> shift;
      const std::uint32_t wu = static_cast<std::uint32_t>(u) & (kOne - 1);
      const std::uint32_t wv = static_cast<std::uint32_t>(v) & (kOne - 1);
      const int i = u >> kWeightBits;
      const int j = v >> kWeightBits;
      const auto blend = [&](const std::uint8_t* const* taps, const std::ptrdiff_t* channel) {
        for (int c = 0; c < kChannels; ++c) {
          const auto level = [&](std::size_t k) -> std::uint32_t {
            return taps[k][c * channel[k]];
          };
          const std::uint32_t top = level(0) * (kOne - wu) + level(1) * wu;
          const std::uint32_t bottom = level(2) * (kOne - wu) + level(3) * wu;
          out[c * canvas.channel] = rounded(top * (kOne - wv) + bottom * wv);
        }
      };
      if (i >= in.x0 && i + 1 < in.x1 && j >= in.y0 && j + 1 < in.y1) {
        const std::uint8_t* from = warp.source + j * warp.row + i * warp.pixel;
        const std::uint8_t* taps[4] = {from, from + warp.pixel, from + warp.row,
                                       from + warp.row + warp.pixel};
        const std::ptrdiff_t channel[4] = {warp.channel, warp.channel, warp.channel, warp.channel};
        blend(taps, channel);
      } else {
        std::ptrdiff_t channel[4];
        const std::uint8_t* taps[4] = {tap(warp, i, j, channel[0]), tap(warp, i + 1, j, channel[1]),
                                       tap(warp, i, j + 1, channel[2]),
                                       tap(warp, i + 1, j + 1, channel[3])};
        blend(taps, channel);
      }
    }
  }
}

void bilinear(const WarpBlock& warp, const Rect& rect, const Canvas& canvas) {
  (canvas.channels == 1 ? bilinear<1> : bilinear<3>)(warp, rect, canvas);
}

#if MILLRACE_X86

// Reads the two taps of a row with one load if all four taps of every lane are inside; otherwise
// reads them one by one, each with its bounds. A pair of levels and a pair of weights take one
// multiply-add of 16-bit numbers; everything else is 32 bits wide.

/// Byte orders that make 16-bit pairs (tap i, tap i + 1) of loaded bytes.
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
}  // namespace millrace::augment

#define MILLRACE_BODY "augment/kernels/bilinear_body.h"
#include "augment/kernels/compile_per_level.h"

namespace millrace::augment {

void add_bilinear_kernels([[maybe_unused]] base::Simd level, Kernels& table) {
  table.bilinear = bilinear;
#if MILLRACE_X86
  if (level == base::Simd::avx2) table.bilinear = avx2::bilinear;
  if (level == base::Simd::avx512) table.bilinear = avx512::bilinear;
#endif
}

}  // namespace millrace::augment
