// Filter::nearest: the pixel whose square holds the position.
#include "augment/kernels/warp_positions.h"

namespace millrace {
namespace {

void nearest(const WarpBlock& warp, const Rect& rect, const Canvas& canvas) {
  for (int y = rect.y0; y < rect.y1; ++y) {
    const RowPositions at(warp, y);
    for (int x = rect.x0; x < rect.x1; ++x) {
      std::ptrdiff_t channel = 0;
      const std::uint8_t* from = tap(warp, at.u(x) >> warp.bits, at.v(x) >> warp.bits, channel);
      for (int c = 0; c < canvas.channels; ++c) *canvas.at(x, y, c) = from[c * channel];
    }
  }
}

}  // namespace

void add_nearest_kernels(Simd, Kernels& table) { table.nearest = nearest; }

}  // namespace millrace
