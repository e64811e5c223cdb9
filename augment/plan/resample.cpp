// Runs one pass of a warp over an image: moves pixels where the map allows it, otherwise samples
// strip by strip.

#include "augment/plan/resample.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "augment/kernels/kernels.h"
#include "augment/kernels/pass.h"

namespace millrace::augment {

// Copies pixels for maps that only move them.

void move_pixels(const Kernels& kernels, const ImageView& view, const Rect& rect,
                 const Canvas& canvas) {
  const int width = rect.x1 - rect.x0;
  const int height = rect.y1 - rect.y0;
  if (width <= 0 || height <= 0) return;
  const auto block = [&](int c, int bytes) -> Block {
    return {view.at(rect.x0, rect.y0, c),
            view.row,
            canvas.at(rect.x0, rect.y0, c),
            canvas.row,
            bytes,
            height};
  };
  const int channels = view.channels;
  const bool from_rgb = channels == 3 && view.channel == 1 && (view.pixel == 3 || view.pixel == -3);
  const bool from_planes = view.pixel == 1 || view.pixel == -1;
  const bool to_rgb = channels == 3 && canvas.interleaved();
  if (from_rgb && to_rgb) {
    if (view.pixel > 0) return kernels.copy(block(0, width * 3));
    return kernels.reverse(block(0, width), 3);
  }
  if (from_rgb) return kernels.split(block(0, width), canvas.channel, view.pixel < 0);
  if (from_planes && to_rgb) return kernels.join(block(0, width), view.channel, view.pixel < 0);
  if (from_planes) {
    for (int c = 0; c < channels; ++c)
      if (view.pixel > 0)
        kernels.copy(block(c, width));
      else
        kernels.reverse(block(c, width), 1);
    return;
  }
  for (int y = rect.y0; y < rect.y1; ++y)
    for (int c = 0; c < channels; ++c) {
      const std::uint8_t* in = view.at(rect.x0, y, c);
      std::uint8_t* out = canvas.at(rect.x0, y, c);
      for (int x = 0; x < width; ++x) out[x * canvas.pixel] = in[x * view.pixel];
    }
}

void paint(const Kernels& kernels, const Rect& rect, const Fill& fill, const Canvas& canvas) {
  const int width = rect.x1 - rect.x0;
  const int height = rect.y1 - rect.y0;
  if (width <= 0 || height <= 0) return;
  if (canvas.channels == 1 || !canvas.interleaved()) {
    for (int c = 0; c < canvas.channels; ++c)
      kernels.fill(canvas.at(rect.x0, rect.y0, c), canvas.row, width, height,
                   fill[static_cast<std::size_t>(c)]);
  } else if (fill[0] == fill[1] && fill[1] == fill[2]) {
    kernels.fill(canvas.at(rect.x0, rect.y0), canvas.row, width * 3, height, fill[0]);
  } else {
    for (int y = rect.y0; y < rect.y1; ++y) {
      std::uint8_t* out = canvas.at(rect.x0, y);
      for (int x = 0; x < width; ++x)
        for (std::size_t c = 0; c < 3; ++c) *out++ = fill[c];
    }
  }
}

/// Computes the levels of a pass's output, strip by strip.
class Resampler {
 public:
  /// `pass` and `scratch` must outlive it.
  Resampler(const Pass& pass, ResampleScratch& scratch);

  /// Writes all pixels of output rows [y0, y1).
  void rows(int y0, int y1, const Canvas& canvas);

 private:
  void prepare_warp();
  void prepare_turned();
  void warp_rows(const Rect& rect, const Canvas& canvas);
  void store_positions(const Rect& row);
  void paint_middle(const Rect& rect, const Canvas& canvas) const;

  const Pass& pass_;
  ResampleScratch& scratch_;
  const Kernels* kernels_;
  Rect needed_;          ///< output pixels inside all outer bounds
  ImageView moved_;      ///< source of the pixels for Filter::none and turned reductions
  WarpBlock warp_;       ///< for nearest and bilinear
  bool stored_ = false;  ///< positions are stored row by row
  std::optional<Reducer> reducer_;
};

// Nearest and bilinear sampling along rows.
namespace {

bool is_empty(const Rect& r) { return r.x0 >= r.x1 || r.y0 >= r.y1; }

/// Returns the intersection; an empty one lies at `a`'s upper left corner.
Rect overlap(const Rect& a, const Rect& b) {
  const Rect both{std::max(a.x0, b.x0), std::max(a.y0, b.y0), std::min(a.x1, b.x1),
                  std::min(a.y1, b.y1)};
  return is_empty(both) ? Rect{a.x0, a.y0, a.x0, a.y0} : both;
}

/// Returns the output pixels inside one more bound, and paints those outside it.
Rect narrowed(const Kernels& kernels, const Rect& rect, const Bound& bound, const Canvas& canvas) {
  const Rect in = overlap(rect, bound.rect);
  if (in == rect) return in;
  paint(kernels, {rect.x0, rect.y0, rect.x1, in.y0}, bound.fill, canvas);
  paint(kernels, {rect.x0, in.y0, in.x0, in.y1}, bound.fill, canvas);
  paint(kernels, {in.x1, in.y0, rect.x1, in.y1}, bound.fill, canvas);
  paint(kernels, {rect.x0, in.y1, rect.x1, rect.y1}, bound.fill, canvas);
  return in;
}

/// Magnitude of positions that lie outside all bounds, or are clamped alike.
constexpr std::int32_t kFarPosition = 1 << 30;

std::int32_t saturated(std::int64_t position) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(position, -kFarPosition, kFarPosition));
}

/// Returns whether all byte offsets inside `rect` fit 31 bits.
bool offsets_fit(const ImageView& view, const Rect& rect) {
  const std::int64_t far_x = std::max(std::abs(rect.x0), std::abs(rect.x1)) + 1;
  const std::int64_t far_y = std::max(std::abs(rect.y0), std::abs(rect.y1)) + 1;
  return far_x * std::abs(view.pixel) + far_y * std::abs(view.row) < (std::int64_t{1} << 31);
}

}  // namespace

Resampler::Resampler(const Pass& pass, ResampleScratch& scratch)
    : pass_(pass),
      scratch_(scratch),
      kernels_(&kernels()),
      needed_{0, 0, pass.output.width, pass.output.height} {
  if (pass.filter == Filter::none) {
    moved_ = pass.source;
    return;
  }
  for (const Bound& bound : pass.outer) needed_ = overlap(needed_, bound.rect);
  if (is_empty(needed_)) return;
  if (pass.filter != Filter::reduce) {
    prepare_warp();
  } else if (pass.move.xx != 0) {
    reducer_.emplace(pass, needed_, scratch);
  } else {
    prepare_turned();
  }
}

void Resampler::prepare_warp() {
  const ImageView& source = pass_.source;
  Rect inside = pass_.held;
  for (const Bound& bound : pass_.inner) inside = overlap(inside, bound.rect);
  warp_.source = source.data;
  warp_.row = source.row;
  warp_.pixel = source.pixel;
  warp_.channel = source.channel;
  warp_.bounds = &pass_.inner;
  warp_.inside = inside;
  warp_.clamp = pass_.border == Border::clamp;
  warp_.bits = fraction_bits(pass_.inner);
  if (is_empty(inside) || !offsets_fit(source, inside)) kernels_ = &kernels(base::Simd::scalar);

  stored_ = !is_affine(pass_.map);
  if (!stored_) {
    const FixedWarp warp(pass_.map, pass_.move, warp_.bits, pass_.filter == Filter::bilinear);
    constexpr std::int64_t kMax = (std::int64_t{1} << 31) - (1 << 23);
    for (const int y : {needed_.y0, needed_.y1 - 1})
      for (const int x : {needed_.x0, needed_.x1 - 1})
        stored_ |= std::abs(warp.u(y).at(x)) >= kMax || std::abs(warp.v(y).at(x)) >= kMax;
    warp_.u_0 = static_cast<std::uint32_t>(warp.u_0);
    warp_.u_x = static_cast<std::uint32_t>(warp.u_x);
    warp_.u_y = static_cast<std::uint32_t>(warp.u_y);
    warp_.v_0 = static_cast<std::uint32_t>(warp.v_0);
    warp_.v_x = static_cast<std::uint32_t>(warp.v_x);
    warp_.v_y = static_cast<std::uint32_t>(warp.v_y);
  }
}

void Resampler::prepare_turned() {
  // The axes are exchanged: reduce without the exchange, then turn as an index move.
  const IndexMove& m = pass_.move;
  const auto corner = [&](int x, int y) {
    return std::pair{m.xx * x + m.xy * y + m.x0, m.yx * x + m.yy * y + m.y0};
  };
  const auto [ax, ay] = corner(needed_.x0, needed_.y0);
  const auto [bx, by] = corner(needed_.x1 - 1, needed_.y1 - 1);
  const int x0 = std::min(ax, bx), y0 = std::min(ay, by);
  Pass straight;
  straight.source = pass_.source;
  straight.held = pass_.held;
  straight.output = {std::abs(ax - bx) + 1, std::abs(ay - by) + 1};
  straight.filter = Filter::reduce;
  straight.move.x0 = x0;
  straight.move.y0 = y0;
  straight.map = pass_.map;
  straight.inner = pass_.inner;
  const int channels = pass_.source.channels;
  std::uint8_t* pixels = scratch_.turned.reserve(static_cast<std::size_t>(straight.output.width) *
                                                 static_cast<std::size_t>(straight.output.height) *
                                                 static_cast<std::size_t>(channels));
  const ImageView reduced = interleaved(pixels, straight.output, channels);
  const Reducer reducer(straight, {0, 0, straight.output.width, straight.output.height}, scratch_);
  reducer.rows(0, straight.output.height,
               {pixels, 0, channels, reduced.row, reduced.pixel, reduced.channel});
  moved_ = reduced;
  moved_.width = pass_.output.width;
  moved_.height = pass_.output.height;
  moved_.data = pixels + (m.x0 - x0) * reduced.pixel + (m.y0 - y0) * reduced.row;
  moved_.pixel = m.xx * reduced.pixel + m.yx * reduced.row;
  moved_.row = m.xy * reduced.pixel + m.yy * reduced.row;
}

void Resampler::rows(int y0, int y1, const Canvas& canvas) {
  Rect rect{0, y0, pass_.output.width, y1};
  const Bounds& bounds = pass_.filter == Filter::none ? pass_.inner : pass_.outer;
  for (const Bound& bound : bounds) rect = narrowed(*kernels_, rect, bound, canvas);
  if (is_empty(rect)) return;
  if (moved_.data != nullptr) {
    move_pixels(*kernels_, moved_, rect, canvas);
  } else if (reducer_) {
    reducer_->rows(rect.y0, rect.y1, canvas);
  } else {
    warp_rows(rect, canvas);
  }
  if (!pass_.middle.empty()) paint_middle(rect, canvas);
}

void Resampler::warp_rows(const Rect& rect, const Canvas& canvas) {
  const auto kernel = pass_.filter == Filter::nearest ? kernels_->nearest : kernels_->bilinear;
  if (!stored_) return kernel(warp_, rect, canvas);
  for (int y = rect.y0; y < rect.y1; ++y) {
    const Rect row{rect.x0, y, rect.x1, y + 1};
    store_positions(row);
    kernel(warp_, row, canvas);
  }
}

void Resampler::store_positions(const Rect& row) {
  const auto places = static_cast<std::size_t>(pass_.output.width + kPositionSlack);
  auto* u = reinterpret_cast<std::int32_t*>(
      scratch_.positions.reserve(2 * places * sizeof(std::int32_t)));
  std::int32_t* v = u + places;
  warp_.u = u;
  warp_.v = v;
  const bool half_pixel_in = pass_.filter == Filter::bilinear;
  if (!is_affine(pass_.map)) {
    kernels_->project({pass_.map, pass_.move, warp_.bits, half_pixel_in}, row.y0, row.x0, row.x1, u,
                      v);
    return;
  }
  const FixedWarp warp(pass_.map, pass_.move, warp_.bits, half_pixel_in);
  const Line line_u = warp.u(row.y0), line_v = warp.v(row.y0);
  for (int x = row.x0; x < row.x1; ++x) {
    u[x] = saturated(line_u.at(x));
    v[x] = saturated(line_v.at(x));
  }
}

void Resampler::paint_middle(const Rect& rect, const Canvas& canvas) const {
  // The first bound decides, so paint it last.
  for (int i = pass_.middle.size() - 1; i >= 0; --i) {
    const auto& [map, bound] = pass_.middle[i];
    const Rect& r = bound.rect;
    const bool affine = is_affine(map);
    const FixedWarp warp(map, pass_.move, fraction_bits(r), false);
    const auto fixed = [&](int edge) { return std::int64_t{edge} << warp.bits; };
    for (int y = rect.y0; y < rect.y1; ++y) {
      if (affine) {
        ColumnRange span = warp.u(y).inside({rect.x0, rect.x1}, fixed(r.x0), fixed(r.x1));
        span = warp.v(y).inside(span, fixed(r.y0), fixed(r.y1));
        paint(*kernels_, {rect.x0, y, span.begin, y + 1}, bound.fill, canvas);
        paint(*kernels_, {span.end, y, rect.x1, y + 1}, bound.fill, canvas);
        continue;
      }
      for (int x = rect.x0; x < rect.x1; ++x) {
        const Point at = mapped(map, pass_.move, x, y);
        if (at.x >= r.x0 && at.x < r.x1 && at.y >= r.y0 && at.y < r.y1) continue;
        for (int c = 0; c < canvas.channels; ++c)
          *canvas.at(x, y, c) = bound.fill[static_cast<std::size_t>(c)];
      }
    }
  }
}

// Runs one pass of a warp over an image.
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
