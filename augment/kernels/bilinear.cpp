// Filter::bilinear: two taps an axis with weights of 11 bits, products of two make 22; the sum is
// exact in 32 bits and rounded once, halves to even.
#include "augment/kernels/warp_positions.h"

namespace millrace {
namespace {

constexpr int kWeightBits = 11;
constexpr std::uint32_t kOne = 1u << kWeightBits;

/// A sum of levels weighted to 2^22, rounded half to even.
std::uint8_t rounded(std::uint32_t sum) {
  return static_cast<std::uint8_t>((sum + (1u << 21) - 1 + (sum >> 22 & 1)) >> 22);
}

void bilinear(const WarpBlock& warp, const Rect& rect, const Canvas& canvas) {
  // Weights are rounded to 11 bits before the position is split, so that 1 carries over.
  const int shift = warp.bits - kWeightBits;
  const std::int32_t round = shift > 0 ? 1 << (shift - 1) : 0;
  for (int y = rect.y0; y < rect.y1; ++y) {
    const RowPositions at(warp, y);
    for (int x = rect.x0; x < rect.x1; ++x) {
      const std::int32_t u = (at.u(x) + round) >> shift;
      const std::int32_t v = (at.v(x) + round) >> shift;
      const std::uint32_t wu = static_cast<std::uint32_t>(u) & (kOne - 1);
      const std::uint32_t wv = static_cast<std::uint32_t>(v) & (kOne - 1);
      const int i = u >> kWeightBits;
      const int j = v >> kWeightBits;
      std::ptrdiff_t channel[4];
      const std::uint8_t* taps[4] = {tap(warp, i, j, channel[0]), tap(warp, i + 1, j, channel[1]),
                                     tap(warp, i, j + 1, channel[2]),
                                     tap(warp, i + 1, j + 1, channel[3])};
      for (int c = 0; c < canvas.channels; ++c) {
        const auto level = [&](std::size_t k) -> std::uint32_t { return taps[k][c * channel[k]]; };
        const std::uint32_t top = level(0) * (kOne - wu) + level(1) * wu;
        const std::uint32_t bottom = level(2) * (kOne - wu) + level(3) * wu;
        *canvas.at(x, y, c) = rounded(top * (kOne - wv) + bottom * wv);
      }
    }
  }
}

}  // namespace

void add_bilinear_kernels(Simd, Kernels& table) { table.bilinear = bilinear; }

}  // namespace millrace
