#include "augment/resample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace millrace {
namespace {

// ---- where a row's pixels come from -------------------------------------------------------------

struct Span {
  int begin;
  int end;
};

/// One axis of the warp along an output row, in fixed point: position(x) = start + x * step.
struct Line {
  std::int64_t start;
  std::int64_t step;
  double per_step;  ///< 1 / step, a first guess for crossings

  std::int64_t at(int x) const { return start + step * x; }

  /// First x in [begin, end] from which on the line is at `level` or past it (in the direction of
  /// step). The guess in floating point is put right by exact steps.
  int crossing(std::int64_t level, int begin, int end) const {
    const double guess = static_cast<double>(level - start) * per_step;
    int x = guess <= begin ? begin : guess >= end ? end : static_cast<int>(guess);
    if (step > 0) {
      while (x > begin && at(x - 1) >= level) --x;
      while (x < end && at(x) < level) ++x;
    } else {
      while (x > begin && at(x - 1) < level) --x;
      while (x < end && at(x) >= level) ++x;
    }
    return x;
  }

  /// The x of `span` with low <= position(x) < high.
  Span inside(Span span, std::int64_t low, std::int64_t high) const {
    if (span.begin >= span.end) return span;
    if (step == 0) {
      if (start >= low && start < high) return span;
      return {span.begin, span.begin};
    }
    const int a = crossing(step > 0 ? low : high, span.begin, span.end);
    const int b = crossing(step > 0 ? high : low, a, span.end);
    return {a, b};
  }
};

/// The warp of a pass in fixed point. The number of fraction bits (12 to 22) follows from the
/// sizes of the source and its bounds alone: all positions inside them fit 31 bits.
struct FixedWarp {
  int bits;
  std::int64_t u_x, u_y, u_0, v_x, v_y, v_0;
  double per_u_x, per_v_x;

  explicit FixedWarp(const Pass& pass) {
    int extent = 1;
    for (const Bound& bound : pass.inner)
      extent = std::max({extent, bound.rect.x1, bound.rect.y1, -bound.rect.x0, -bound.rect.y0});
    bits = std::min(22, 30 - static_cast<int>(std::bit_width(static_cast<unsigned>(extent))));
    const double one = std::ldexp(1.0, bits);
    // What lies farther out than this is outside of everything; sums of these fit 63 bits.
    const auto fixed = [&](double value, double most) {
      return static_cast<std::int64_t>(std::floor(std::clamp(value * one, -most, most) + 0.5));
    };
    const auto& m = pass.map;
    // Bilinear taps lie at pixel centres, half a pixel in.
    const std::int64_t half = pass.filter == Filter::bilinear ? std::int64_t{1} << (bits - 1) : 0;
    constexpr double kStep = 0x1p42, kStart = 0x1p60;
    const std::int64_t ux = fixed(m[0], kStep), uy = fixed(m[1], kStep);
    const std::int64_t vx = fixed(m[3], kStep), vy = fixed(m[4], kStep);
    // Centres of the moved output pixel (0, 0), then the moves folded in: whole numbers, exact.
    u_0 = fixed(m[0] * 0.5 + m[1] * 0.5 + m[2], kStart) - half + ux * pass.move_x.offset +
          uy * pass.move_y.offset;
    v_0 = fixed(m[3] * 0.5 + m[4] * 0.5 + m[5], kStart) - half + vx * pass.move_x.offset +
          vy * pass.move_y.offset;
    u_x = ux * pass.move_x.scale;
    v_x = vx * pass.move_x.scale;
    u_y = uy * pass.move_y.scale;
    v_y = vy * pass.move_y.scale;
    per_u_x = u_x != 0 ? 1.0 / static_cast<double>(u_x) : 0;
    per_v_x = v_x != 0 ? 1.0 / static_cast<double>(v_x) : 0;
  }
  Line u(int y) const { return {u_0 + u_y * y, u_x, per_u_x}; }
  Line v(int y) const { return {v_0 + v_y * y, v_x, per_v_x}; }
};

// ---- where levels go ----------------------------------------------------------------------------

/// One row of the output: put() takes levels. Element and layout are fixed at compile time, so
/// the inner loops hold no branch on them.
template <class Element, bool kInterleaved, int kChannels>
struct RowSink {
  Element* row;          ///< element (0, y, channel 0)
  std::ptrdiff_t plane;  ///< elements from one channel to the next
  const float* levels[kChannels];

  static constexpr std::ptrdiff_t kPixel = kInterleaved ? kChannels : 1;

  Element element(std::uint8_t level, int c) const {
    if constexpr (std::is_same_v<Element, float>) {
      return levels[c][level];
    } else {
      return level;
    }
  }
  void put(int x, int c, std::uint8_t level) const {
    row[x * kPixel + c * (kInterleaved ? 1 : plane)] = element(level, c);
  }
  void fill(Span span, const Fill& fill) const {
    for (int c = 0; c < kChannels; ++c)
      for (int x = span.begin; x < span.end; ++x) put(x, c, fill[static_cast<std::size_t>(c)]);
  }
};

/// Narrows `span` by one bound after the other and fills what falls out.
template <class Sink>
Span narrowed(Span span, Span inner, const Fill& fill, const Sink& sink) {
  if (inner.begin > span.begin) sink.fill({span.begin, inner.begin}, fill);
  if (inner.end < span.end) sink.fill({inner.end, span.end}, fill);
  return inner;
}

Span clipped(Span span, const Rect& rect, int y) {
  if (y < rect.y0 || y >= rect.y1) return {span.begin, span.begin};
  const int begin = std::min(std::max(span.begin, rect.x0), span.end);
  return {begin, std::max(begin, std::min(span.end, rect.x1))};
}

template <int kChannels, class Sink>
void move_row(const Pass& pass, int y, Span span, const Sink& sink) {
  const ImageView& source = pass.source;
  for (int c = 0; c < kChannels; ++c) {
    const std::uint8_t* from = source.data + y * source.row + c * source.channel;
    const std::ptrdiff_t pixel = source.pixel;
    if (pixel == 1 && Sink::kPixel == 1) {  // known strides: the compiler's copy or vector loop
      for (int x = span.begin; x < span.end; ++x) sink.put(x, c, from[x]);
    } else {
      for (int x = span.begin; x < span.end; ++x) sink.put(x, c, from[x * pixel]);
    }
  }
}

/// The source as it is, already in the output's bytes and order: one copy.
template <class Element, bool kInterleaved, int kChannels>
bool copied_whole(const Pass& pass, Element* out) {
  if constexpr (std::is_same_v<Element, std::uint8_t>) {
    const ImageView& s = pass.source;
    const std::ptrdiff_t width = pass.output.width;
    const std::ptrdiff_t plane = width * pass.output.height;
    const bool same_order = kInterleaved ? s.pixel == kChannels && s.row == width * kChannels
                                         : s.pixel == 1 && s.row == width && s.channel == plane;
    const bool one_channel_apart = kChannels == 1 || !kInterleaved || s.channel == 1;
    if (pass.filter != Filter::none || pass.inner.size() > 0 || !same_order || !one_channel_apart)
      return false;
    std::memcpy(out, s.data, static_cast<std::size_t>(plane) * kChannels);
    return true;
  }
  return false;
}

template <int kChannels, class Sink>
void nearest_row(const Pass& pass, const FixedWarp& warp, int y, Span span, const Sink& sink) {
  const Line line_u = warp.u(y);
  const Line line_v = warp.v(y);
  for (const Bound& bound : pass.inner) {
    Span inner = line_u.inside(span, std::int64_t{bound.rect.x0} << warp.bits,
                               std::int64_t{bound.rect.x1} << warp.bits);
    inner = line_v.inside(inner, std::int64_t{bound.rect.y0} << warp.bits,
                          std::int64_t{bound.rect.y1} << warp.bits);
    span = narrowed(span, inner, bound.fill, sink);
  }
  // Inside, positions fit 31 bits: modular 32-bit steps are exact.
  const ImageView& source = pass.source;
  auto u = static_cast<std::uint32_t>(line_u.at(span.begin));
  auto v = static_cast<std::uint32_t>(line_v.at(span.begin));
  const auto du = static_cast<std::uint32_t>(line_u.step);
  const auto dv = static_cast<std::uint32_t>(line_v.step);
  for (int x = span.begin; x < span.end; ++x, u += du, v += dv) {
    const std::ptrdiff_t i = static_cast<std::int32_t>(u) >> warp.bits;
    const std::ptrdiff_t j = static_cast<std::int32_t>(v) >> warp.bits;
    const std::uint8_t* from = source.data + j * source.row + i * source.pixel;
    for (int c = 0; c < kChannels; ++c) sink.put(x, c, from[c * source.channel]);
  }
}

/// Weights of 11 bits an axis; products of two make 22.
constexpr int kWeightBits = 11;

/// A sum of levels weighted to 2^22, rounded half to even.
std::uint8_t rounded(std::uint32_t sum) {
  return static_cast<std::uint8_t>((sum + (1u << 21) - 1 + (sum >> 22 & 1)) >> 22);
}

/// The level at (i, j) of the source frame: the first bound it leaves decides.
std::uint8_t tap(const Pass& pass, std::ptrdiff_t i, std::ptrdiff_t j, int c) {
  for (const Bound& bound : pass.inner) {
    const Rect& r = bound.rect;
    if (i < r.x0 || i >= r.x1 || j < r.y0 || j >= r.y1)
      return bound.fill[static_cast<std::size_t>(c)];
  }
  return *pass.source.at(static_cast<int>(i), static_cast<int>(j), c);
}

template <int kChannels, class Sink>
void bilinear_row(const Pass& pass, const FixedWarp& warp, int y, Span span, const Sink& sink) {
  const Line line_u = warp.u(y);
  const Line line_v = warp.v(y);
  // Weights are rounded to 11 bits before the position is split, so that 1 carries over.
  const std::int64_t round = std::int64_t{1} << (warp.bits - kWeightBits - 1);
  const std::uint32_t mask = (1u << kWeightBits) - 1;
  const int shift = warp.bits - kWeightBits;

  Span inner = span;  // all four taps inside every bound
  for (const Bound& bound : pass.inner) {
    const auto low = [&](int edge) { return (std::int64_t{edge} << warp.bits) - round; };
    inner = line_u.inside(inner, low(bound.rect.x0), low(bound.rect.x1 - 1));
    inner = line_v.inside(inner, low(bound.rect.y0), low(bound.rect.y1 - 1));
  }
  const auto weigh = [&](std::int64_t u, std::int64_t v, auto&& level, int x) {
    const std::int64_t fu = (u + round) >> shift;
    const std::int64_t fv = (v + round) >> shift;
    const std::uint32_t wu = static_cast<std::uint32_t>(fu) & mask;
    const std::uint32_t wv = static_cast<std::uint32_t>(fv) & mask;
    const auto i = static_cast<std::ptrdiff_t>(fu >> kWeightBits);
    const auto j = static_cast<std::ptrdiff_t>(fv >> kWeightBits);
    const std::uint32_t one = 1u << kWeightBits;
    for (int c = 0; c < kChannels; ++c) {
      const std::uint32_t top = level(i, j, c) * (one - wu) + level(i + 1, j, c) * wu;
      const std::uint32_t bottom = level(i, j + 1, c) * (one - wu) + level(i + 1, j + 1, c) * wu;
      sink.put(x, c, rounded(top * (one - wv) + bottom * wv));
    }
  };
  const auto edge = [&](int begin, int end) {
    for (int x = begin; x < end; ++x)
      weigh(
          line_u.at(x), line_v.at(x),
          [&](std::ptrdiff_t i, std::ptrdiff_t j, int c) -> std::uint32_t {
            return tap(pass, i, j, c);
          },
          x);
  };
  edge(span.begin, inner.begin);
  const ImageView& source = pass.source;
  for (int x = inner.begin; x < inner.end; ++x)
    weigh(
        line_u.at(x), line_v.at(x),
        [&](std::ptrdiff_t i, std::ptrdiff_t j, int c) -> std::uint32_t {
          return source.data[j * source.row + i * source.pixel + c * source.channel];
        },
        x);
  edge(inner.end, span.end);
}

template <class Element, bool kInterleaved, int kChannels>
void resample_as(const Pass& pass, const Store* store, Element* out) {
  if (copied_whole<Element, kInterleaved, kChannels>(pass, out)) return;
  const int width = pass.output.width;
  const int height = pass.output.height;
  RowSink<Element, kInterleaved, kChannels> sink{};
  sink.plane = static_cast<std::ptrdiff_t>(width) * height;
  if (store != nullptr)
    for (int c = 0; c < kChannels; ++c) sink.levels[c] = store->levels(c);
  const FixedWarp warp(pass);
  for (int y = 0; y < height; ++y) {
    sink.row = out + static_cast<std::ptrdiff_t>(y) * width * (kInterleaved ? kChannels : 1);
    Span span{0, width};
    if (pass.filter == Filter::none) {
      for (const Bound& bound : pass.inner)
        span = narrowed(span, clipped(span, bound.rect, y), bound.fill, sink);
      move_row<kChannels>(pass, y, span, sink);
      continue;
    }
    for (const Bound& bound : pass.outer)
      span = narrowed(span, clipped(span, bound.rect, y), bound.fill, sink);
    if (pass.filter == Filter::nearest) {
      nearest_row<kChannels>(pass, warp, y, span, sink);
    } else {
      bilinear_row<kChannels>(pass, warp, y, span, sink);
    }
  }
}

template <class Element>
void resample_as(const Pass& pass, const Store* store, bool is_interleaved, Element* out) {
  const bool gray = pass.source.channels == 1;
  if (gray) return resample_as<Element, true, 1>(pass, store, out);
  if (is_interleaved) return resample_as<Element, true, 3>(pass, store, out);
  return resample_as<Element, false, 3>(pass, store, out);
}

}  // namespace

void resample(const Pass& pass, const Store& store, std::byte* out) {
  const bool is_interleaved = store.layout() == Layout::hwc;
  if (store.dtype() == DType::f32) {
    resample_as(pass, &store, is_interleaved, reinterpret_cast<float*>(out));
  } else {
    resample_as(pass, &store, is_interleaved, reinterpret_cast<std::uint8_t*>(out));
  }
}

void resample(const Pass& pass, std::uint8_t* out) { resample_as(pass, nullptr, true, out); }

}  // namespace millrace
