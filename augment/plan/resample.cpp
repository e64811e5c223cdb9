// Runs one pass of a warp over an image.
#include "augment/plan/resample.h"

#include <algorithm>
#include <cstring>

#include "augment/plan/resampler.h"

namespace millrace::augment {
namespace {

/// Size of the buffer of levels between sampling and store: half of a first-level cache.
constexpr int kTileBytes = 16384;

/// Returns a canvas of output rows [top, bottom) at `data`, without gaps.
Canvas canvas_at(std::uint8_t* data, int top, int bottom, int width, int channels, bool planar) {
  if (planar)
    return {data, top, channels, width, 1, static_cast<std::ptrdiff_t>(width) * (bottom - top)};
  return {data, top, channels, static_cast<std::ptrdiff_t>(width) * channels, channels, 1};
}

/// Returns whether the source has exactly the output's pixels, in the output's order.
bool is_plain(const Pass& pass, bool planar) {
  const ImageView& s = pass.source;
  const std::ptrdiff_t width = pass.output.width;
  const Rect whole{0, 0, pass.output.width, pass.output.height};
  if (pass.filter != Filter::none) return false;
  for (const Bound& bound : pass.inner) {
    const Rect& r = bound.rect;
    if (r.x0 > 0 || r.y0 > 0 || r.x1 < whole.x1 || r.y1 < whole.y1) return false;
  }
  if (planar) return s.pixel == 1 && s.row == width && s.channel == width * pass.output.height;
  return s.pixel == s.channels && s.row == width * s.channels &&
         (s.channels == 1 || s.channel == 1);
}

}  // namespace

void resample(const Pass& pass, const Store& store, std::byte* out, ResampleScratch& scratch,
              const LevelTable* tables) {
  const auto [width, height] = pass.output;
  const int channels = pass.source.channels;
  const bool planar = channels > 1 && store.layout() == Layout::chw;
  const bool raw = store.dtype() == DType::u8 && tables == nullptr;
  if (is_plain(pass, planar)) {
    if (raw)  // one copy instead of one per row
      std::memcpy(out, pass.source.data,
                  static_cast<std::size_t>(width) * static_cast<std::size_t>(height) *
                      static_cast<std::size_t>(channels));
    else
      store.rows(pass.source.data, pass.output, 0, height, tables, out);
    return;
  }
  Resampler sampler(pass, scratch);
  if (raw) {
    sampler.rows(
        0, height,
        canvas_at(reinterpret_cast<std::uint8_t*>(out), 0, height, width, channels, planar));
    return;
  }
  const int rows = std::clamp(kTileBytes / std::max(1, width * channels), 1, std::max(1, height));
  std::uint8_t* tile = scratch.tile.reserve(static_cast<std::size_t>(rows) *
                                            static_cast<std::size_t>(width * channels));
  for (int y = 0; y < height; y += rows) {
    const int end = std::min(height, y + rows);
    sampler.rows(y, end, canvas_at(tile, y, end, width, channels, planar));
    store.rows(tile, pass.output, y, end, tables, out);
  }
}

void resample(const Pass& pass, std::uint8_t* out, ResampleScratch& scratch,
              const LevelTable* tables) {
  static const Store as_it_is[] = {{DType::u8, Layout::hwc, 1, {0}, {1}},
                                   {DType::u8, Layout::hwc, 3, {0}, {1}}};
  resample(pass, as_it_is[pass.source.channels == 3], reinterpret_cast<std::byte*>(out), scratch,
           tables);
}

}  // namespace millrace::augment
