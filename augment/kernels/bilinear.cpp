// Filter::bilinear: two taps an axis with weights of 11 bits, products of two make 22; the sum is
// exact in 32 bits and rounded once, halves to even.
#include "augment/kernels/bilinear.h"

#include <algorithm>
#include <cstring>

#include "augment/kernels/warp_positions.h"

namespace millrace {
namespace {

/// A sum of levels weighted to 2^22, rounded half to even.
std::uint8_t rounded(std::uint32_t sum) {
  return static_cast<std::uint8_t>((sum + (1u << 21) - 1 + (sum >> 22 & 1)) >> 22);
}

template <int kChannels>
void bilinear(const WarpBlock& shared, const Rect& rect, const Canvas& shared_canvas) {
  const WarpBlock warp = shared;  // copies, which writing pixels can't seem to change
  const Canvas canvas = shared_canvas;
  // Weights are rounded to 11 bits before the position is split, so that 1 carries over.
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

}  // namespace

void add_bilinear_kernels([[maybe_unused]] Simd level, Kernels& table) {
  table.bilinear = bilinear;
#if MILLRACE_X86
  if (level == Simd::avx2) add_bilinear_avx2(table);
  if (level == Simd::avx512) add_bilinear_avx512(table);
#endif
}

}  // namespace millrace
