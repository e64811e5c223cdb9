#include "augment/plan/float_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "millrace/math.hpp"

namespace millrace::augment {
namespace {

template <class T>
T load(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Converts `count` values that lie `step` bytes apart to floats `stride` floats apart.
template <class T>
void convert(const std::uint8_t* from, std::ptrdiff_t step, float full, int count, float* to,
             int stride) {
  for (int i = 0; i < count; ++i, from += step, to += stride)
    *to = static_cast<float>(load<T>(from)) / full;
}

bool contains(const Rect& rect, int x, int y) {
  return x >= rect.x0 && y >= rect.y0 && x < rect.x1 && y < rect.y1;
}

float fill_of(const Fill& fill, int channel) {
  return static_cast<float>(fill[static_cast<std::size_t>(std::min(channel, 3))]) / 255.0f;
}

/// Returns the first bound that the position leaves, or null.
const Bound* left_bound(const Bounds& bounds, int x, int y) {
  for (const Bound& bound : bounds)
    if (!contains(bound.rect, x, y)) return &bound;
  return nullptr;
}

/// A position's whole part, or one that lies outside of everything.
int whole_part(double position) {
  constexpr double kFar = 1 << 28;
  if (!(std::abs(position) < kFar)) return position > 0 ? 1 << 28 : -(1 << 28);  // also no number
  return static_cast<int>(floor_to_whole(position));
}

/// Computes output pixels by one of the filters that sample positions.
class Sampler {
 public:
  explicit Sampler(const Pass& pass) : pass_(pass), channels_(pass.source.channels) {}

  void nearest(int x, int y, float* out) const {
    const Point at = mapped(pass_.map, pass_.move, x, y);
    int i = whole_part(at.x), j = whole_part(at.y);
    const Bound* const left = place(i, j);
    for (int c = 0; c < channels_; ++c) out[c] = left ? fill_of(left->fill, c) : value(i, j, c);
  }

  void bilinear(int x, int y, float* out) const {
    const Point at = mapped(pass_.map, pass_.move, x, y);
    const double u = at.x - 0.5, v = at.y - 0.5;
    const int i = whole_part(u), j = whole_part(v);
    const auto part = [](double position, int whole) {
      return std::abs(whole) < 1 << 28 ? static_cast<float>(position - whole) : 0.0f;
    };
    const float wx = part(u, i), wy = part(v, j);
    // Taps without weight are not read: a value that is no number stays where it is.
    const float weights[4] = {(1 - wx) * (1 - wy), wx * (1 - wy), (1 - wx) * wy, wx * wy};
    std::fill_n(out, channels_, 0.0f);
    for (int tap = 0; tap < 4; ++tap) {
      if (weights[tap] == 0) continue;
      int tap_x = i + (tap & 1), tap_y = j + (tap >> 1);
      const Bound* const left = place(tap_x, tap_y);
      for (int c = 0; c < channels_; ++c)
        out[c] += weights[tap] * (left ? fill_of(left->fill, c) : value(tap_x, tap_y, c));
    }
  }

 private:
  /// Returns the bound that a tap leaves, or null. With a clamped border, moves the tap inside.
  const Bound* place(int& x, int& y) const {
    if (pass_.border == Border::constant) return left_bound(pass_.inner, x, y);
    const Rect& rect = pass_.inner[0].rect;
    x = std::clamp(x, rect.x0, rect.x1 - 1);
    y = std::clamp(y, rect.y0, rect.y1 - 1);
    return nullptr;
  }
  float value(int x, int y, int c) const { return load<float>(pass_.source.at(x, y, c)); }

  const Pass& pass_;
  const int channels_;
};

// Reductions: a triangle filter per axis, as wide as an output pixel.

/// Weights of one axis: output i is the sum of weights[i * stride + k] * input[first[i] + k], k in
/// [0, counts[i]).
struct FloatTaps {
  int* first;
  int* counts;
  float* weights;
  int stride;
};

/// One axis of a reduction for outputs [begin, end): around scale * (i + 0.5) + offset in
/// [low, high).
struct FloatAxis {
  double scale, offset;
  int low, high, begin, end;

  double support() const { return std::max(scale, 1.0); }
  int stride() const { return static_cast<int>(std::min(2 * support() + 3, high - low + 1.0)); }
  std::size_t bytes() const {
    return static_cast<std::size_t>(end - begin) *
           (2 * sizeof(int) + static_cast<std::size_t>(stride()) * sizeof(float));
  }

  FloatTaps taps(std::uint8_t*& memory) const {
    const auto outputs = static_cast<std::size_t>(end - begin);
    FloatTaps taps{reinterpret_cast<int*>(memory), nullptr, nullptr, stride()};
    taps.counts = taps.first + outputs;
    taps.weights = reinterpret_cast<float*>(taps.counts + outputs);
    memory += bytes();
    for (int i = begin; i < end; ++i) weigh(i, taps);
    return taps;
  }

 private:
  void weigh(int i, const FloatTaps& taps) const {
    const double centre = scale * (i + 0.5) + offset, wide = support();
    int from = std::max(whole_part(centre - wide + 0.5), low);
    int to = std::min({whole_part(centre + wide + 0.5), high, from + taps.stride});
    const auto triangle = [&](int at) {
      return std::max(0.0, 1 - std::abs((at + 0.5 - centre) / wide));
    };
    // Taps without weight are not read: a value that is no number stays where it is.
    while (from < to && triangle(from) == 0) ++from;
    while (from < to && triangle(to - 1) == 0) --to;
    float* const weights = taps.weights + static_cast<std::ptrdiff_t>(i - begin) * taps.stride;
    double total = 0;
    for (int at = from; at < to; ++at) total += triangle(at);
    if (!(total > 0)) {  // the filter lies outside: use the edge
      taps.first[i - begin] = std::clamp(whole_part(centre), low, high - 1);
      taps.counts[i - begin] = 1;
      weights[0] = 1;
      return;
    }
    taps.first[i - begin] = from;
    taps.counts[i - begin] = to - from;
    for (int at = from; at < to; ++at)
      weights[at - from] = static_cast<float>(triangle(at) / total);
  }
};

/// Adds weight * value of `count` values in turn.
void add(float weight, const float* __restrict values, int count, float* __restrict sums) {
  for (int i = 0; i < count; ++i) sums[i] += weight * values[i];
}

/// Returns the reduction's output pixels inside `frame`, before moves, as a view whose pixel (0, 0)
/// is the frame's corner.
ImageView reduce(const Pass& pass, const Rect& frame, FloatScratch& scratch) {
  const ImageView& source = pass.source;
  const Rect& inner = pass.inner[0].rect;
  const FloatAxis across{pass.map[0], pass.map[2], inner.x0, inner.x1, frame.x0, frame.x1};
  const FloatAxis down{pass.map[4], pass.map[5], inner.y0, inner.y1, frame.y0, frame.y1};
  std::uint8_t* memory = scratch.taps.reserve(across.bytes() + down.bytes());
  const FloatTaps x_taps = across.taps(memory), y_taps = down.taps(memory);

  const int width = frame.x1 - frame.x0, height = frame.y1 - frame.y0, channels = source.channels;
  int begin = inner.x1, end = inner.x0;
  for (int i = 0; i < width; ++i) {
    begin = std::min(begin, x_taps.first[i]);
    end = std::max(end, x_taps.first[i] + x_taps.counts[i]);
  }
  const int line_values = (end - begin) * channels;
  auto* const line = reinterpret_cast<float*>(
      scratch.rows.reserve(2 * static_cast<std::size_t>(line_values) * sizeof(float)));
  float* const packed = line + line_values;
  const Size size{width, height};
  std::uint8_t* const pixels =
      scratch.reduced.reserve(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) *
                              static_cast<std::size_t>(channels) * sizeof(float));
  auto* out = reinterpret_cast<float*>(pixels);
  const auto value = static_cast<std::ptrdiff_t>(sizeof(float));
  const bool side_by_side = source.channel == value && source.pixel == channels * value;
  for (int y = 0; y < height; ++y) {
    std::fill_n(line, line_values, 0.0f);
    for (int k = 0; k < y_taps.counts[y]; ++k) {
      const std::uint8_t* from = source.at(begin, y_taps.first[y] + k);
      const float weight = y_taps.weights[static_cast<std::ptrdiff_t>(y) * y_taps.stride + k];
      if (side_by_side) {
        add(weight, reinterpret_cast<const float*>(from), line_values, line);
        continue;
      }
      for (int x = begin; x < end; ++x, from += source.pixel)
        for (int c = 0; c < channels; ++c)
          packed[(x - begin) * channels + c] = load<float>(from + c * source.channel);
      add(weight, packed, line_values, line);
    }
    for (int x = 0; x < width; ++x, out += channels) {
      std::fill_n(out, channels, 0.0f);
      const float* from = line + static_cast<std::ptrdiff_t>(x_taps.first[x] - begin) * channels;
      for (int k = 0; k < x_taps.counts[x]; ++k, from += channels)
        add(x_taps.weights[static_cast<std::ptrdiff_t>(x) * x_taps.stride + k], from, channels,
            out);
    }
  }
  return interleaved(pixels, size, channels, Depth::f32);
}

/// Returns the part of the warp's output that a rectangle of moved pixels shows.
Rect before_move(const Rect& rect, const IndexMove& m) {
  const auto at = [&](int x, int y) {
    return std::pair(m.xx * x + m.xy * y + m.x0, m.yx * x + m.yy * y + m.y0);
  };
  const auto [ax, ay] = at(rect.x0, rect.y0);
  const auto [bx, by] = at(rect.x1 - 1, rect.y1 - 1);
  return {std::min(ax, bx), std::min(ay, by), std::max(ax, bx) + 1, std::max(ay, by) + 1};
}

/// Calls inside(x, y, pixel) for each output pixel, or writes the fill of the bound that it leaves.
template <class Inside>
void each_pixel(const Pass& pass, const Bounds& bounds, float* out, const Inside& inside) {
  const int channels = pass.source.channels;
  for (int y = 0; y < pass.output.height; ++y)
    for (int x = 0; x < pass.output.width; ++x, out += channels) {
      const Bound* left = left_bound(bounds, x, y);
      for (const MappedBound& middle : pass.middle) {
        if (left != nullptr) break;
        const Point at = mapped(middle.map, pass.move, x, y);
        const Rect& r = middle.bound.rect;
        const bool in = at.x >= r.x0 && at.x < r.x1 && at.y >= r.y0 && at.y < r.y1;
        if (!in) left = &middle.bound;
      }
      if (left == nullptr)
        inside(x, y, out);
      else
        for (int c = 0; c < channels; ++c) out[c] = fill_of(left->fill, c);
    }
}

}  // namespace

ImageView to_floats(const ImageView& image, const Rect& region, Buffer& memory) {
  const int width = region.x1 - region.x0, channels = image.channels;
  const Size size{width, region.y1 - region.y0};
  std::uint8_t* const pixels =
      memory.reserve(static_cast<std::size_t>(width) * static_cast<std::size_t>(size.height) *
                     static_cast<std::size_t>(channels) * sizeof(float));
  auto* to = reinterpret_cast<float*>(pixels);
  const bool side_by_side =
      image.channel == bytes_of(image.depth) && image.pixel == channels * image.channel;
  const auto row = [&](const std::uint8_t* from, std::ptrdiff_t step, int count, int stride) {
    if (image.depth == Depth::u8) return convert<std::uint8_t>(from, step, 255, count, to, stride);
    if (image.depth == Depth::u16)
      return convert<std::uint16_t>(from, step, 65535, count, to, stride);
    convert<float>(from, step, 1, count, to, stride);
  };
  for (int y = region.y0; y < region.y1; ++y) {
    if (side_by_side) {
      row(image.at(region.x0, y), image.channel, width * channels, 1);
      to += width * channels;
      continue;
    }
    for (int c = 0; c < channels; ++c, ++to)
      row(image.at(region.x0, y, c), image.pixel, width, channels);
    to += (width - 1) * channels;
  }
  ImageView view = interleaved(pixels, size, channels, Depth::f32);
  view.data -= region.y0 * view.row + region.x0 * view.pixel;
  view.width = image.width;
  view.height = image.height;
  return view;
}

void resample(const Pass& pass, float* out, FloatScratch& scratch) {
  const int channels = pass.source.channels;
  if (pass.filter == Filter::none)
    return each_pixel(pass, pass.inner, out, [&](int x, int y, float* pixel) {
      const std::uint8_t* from = pass.source.at(x, y);
      for (int c = 0; c < channels; ++c) pixel[c] = load<float>(from + c * pass.source.channel);
    });
  const Sampler sampler(pass);
  if (pass.filter == Filter::nearest)
    return each_pixel(pass, pass.outer, out,
                      [&](int x, int y, float* pixel) { sampler.nearest(x, y, pixel); });
  if (pass.filter == Filter::bilinear)
    return each_pixel(pass, pass.outer, out,
                      [&](int x, int y, float* pixel) { sampler.bilinear(x, y, pixel); });

  Rect needed{0, 0, pass.output.width, pass.output.height};
  for (const Bound& bound : pass.outer)
    needed = {std::max(needed.x0, bound.rect.x0), std::max(needed.y0, bound.rect.y0),
              std::min(needed.x1, bound.rect.x1), std::min(needed.y1, bound.rect.y1)};
  const IndexMove& m = pass.move;
  ImageView reduced;
  Rect frame;
  if (needed.x0 < needed.x1 && needed.y0 < needed.y1) {
    frame = before_move(needed, m);
    reduced = reduce(pass, frame, scratch);
  }
  each_pixel(pass, pass.outer, out, [&](int x, int y, float* pixel) {
    const int i = m.xx * x + m.xy * y + m.x0 - frame.x0;
    const int j = m.yx * x + m.yy * y + m.y0 - frame.y0;
    std::memcpy(pixel, reduced.at(i, j), static_cast<std::size_t>(channels) * sizeof(float));
  });
}

}  // namespace millrace::augment
