// Scales an image down with a triangle filter.
#include <algorithm>
#include <cmath>
#include <utility>

#include "augment/plan/resample.h"
#include "millrace/math.hpp"

namespace millrace::augment {
namespace {

/// One axis: output i reads around the position scale * (i + 0.5) + offset in [low, high).
struct Axis {
  double scale, offset;
  int low, high;

  double support() const { return std::max(scale, 1.0); }
  double centre(int i) const { return scale * (i + 0.5) + offset; }
  /// Returns the largest number of taps of an output, rounded up to a multiple of 4.
  int max_taps() const {
    const double most = std::min(2 * support() + 2, static_cast<double>(high - low));
    return (static_cast<int>(most) + 3) / 4 * 4;
  }
  int column(double position) const {
    return static_cast<int>(floor_to_whole(std::clamp(position, low - 1.0, high + 1.0)));
  }
};

/// Computes the weights of one output and returns its first tap. The weights are whole numbers with
/// sum 2^14, the first and last not 0. They are differences of the rounded running sum, so that
/// errors do not add up over many taps.
int weigh(const Axis& axis, double centre, std::int16_t* weights, int& count) {
  constexpr int kOne = 1 << kTapBits;
  const double support = axis.support();
  const int first = std::max(axis.column(centre - support + 0.5), axis.low);
  const int last = std::min(axis.column(centre + support + 0.5), axis.high);
  const double narrow = 1 / support;
  const auto triangle = [&](int i) {
    return std::max(0.0, 1 - std::abs((i + 0.5 - centre) * narrow));
  };
  double total = 0;
  for (int i = first; i < last; ++i) total += triangle(i);
  if (!(total > 0)) {  // the filter lies outside: use the edge
    weights[0] = kOne;
    count = 1;
    return std::clamp(axis.column(centre), axis.low, axis.high - 1);
  }
  const double unit = kOne / total;
  double sum = 0;
  int given = 0, from = last, to = first;
  for (int i = first; i < last; ++i) {
    sum += triangle(i) * unit;
    const int rounded = static_cast<int>(sum + 0.5);
    if (rounded == given) {
      if (from < i) weights[i - from] = 0;
      continue;
    }
    from = std::min(from, i);
    to = i + 1;
    weights[i - from] = static_cast<std::int16_t>(rounded - given);
    given = rounded;
  }
  count = to - from;
  return from;
}

/// Returns the bytes of Taps for one axis.
std::size_t bytes_of(const Axis& axis, int outputs) {
  const auto n = static_cast<std::size_t>(outputs);
  return n * (8 + static_cast<std::size_t>(axis.max_taps()) * 2);
}

/// Builds the taps of outputs first, first + step, ... in the memory at `at`, and advances it.
Taps build(const Axis& axis, int first, int step, int outputs, std::uint8_t*& at) {
  Taps taps;
  taps.outputs = outputs;
  taps.stride = axis.max_taps();
  taps.first = reinterpret_cast<std::int32_t*>(at);
  taps.counts = taps.first + outputs;
  taps.weights = reinterpret_cast<std::int16_t*>(taps.counts + outputs);
  at += bytes_of(axis, outputs);
  taps.most = 0;
  for (int i = 0; i < outputs; ++i) {
    std::int16_t* weights = taps.weights + static_cast<std::ptrdiff_t>(i) * taps.stride;
    taps.first[i] = weigh(axis, axis.centre(first + i * step), weights, taps.counts[i]);
    taps.most = std::max(taps.most, taps.counts[i]);
    std::fill(weights + taps.counts[i], weights + taps.stride, std::int16_t{0});
  }
  return taps;
}

/// Reverses taps for a source that is mirrored in memory, where pixel i is at -i.
void mirror(Taps& taps) {
  for (int i = 0; i < taps.outputs; ++i) {
    std::int16_t* weights = taps.weights + static_cast<std::ptrdiff_t>(i) * taps.stride;
    std::reverse(weights, weights + taps.counts[i]);
    taps.first[i] = -(taps.first[i] + taps.counts[i] - 1);
  }
}

/// Returns the number of channels reduced together: those that lie side by side.
int channels_together(const ImageView& view) {
  return view.channels == 3 && view.channel == 1 ? 3 : 1;
}

}  // namespace

Reducer::Reducer(const Pass& pass, const Rect& needed, ResampleScratch& scratch)
    : kernels_(kernels()), needed_(needed), source_(pass.source) {
  const Rect& inner = pass.inner[0].rect;
  const IndexMove& move = pass.move;
  const int width = needed.x1 - needed.x0;
  const int height = needed.y1 - needed.y0;
  const Axis x{pass.map[0], pass.map[2], inner.x0, inner.x1};
  const Axis y{pass.map[4], pass.map[5], inner.y0, inner.y1};
  const std::size_t axes = bytes_of(x, width) + bytes_of(y, height);
  std::uint8_t* at = scratch.taps.reserve(axes);
  x_ = build(x, move.xx * needed.x0 + move.x0, move.xx, width, at);
  y_ = build(y, move.yy * needed.y0 + move.y0, move.yy, height, at);

  int together = channels_together(source_);
  if (source_.pixel != together && source_.pixel != -together) {
    // Pack the needed part of a source whose strides the kernels do not read.
    int x0 = inner.x1, x1 = inner.x0, y0 = inner.y1, y1 = inner.y0;
    for (int i = 0; i < width; ++i) {
      x0 = std::min(x0, x_.first[i]);
      x1 = std::max(x1, x_.first[i] + x_.counts[i]);
    }
    for (int i = 0; i < height; ++i) {
      y0 = std::min(y0, y_.first[i]);
      y1 = std::max(y1, y_.first[i] + y_.counts[i]);
    }
    const Size size{x1 - x0, y1 - y0};
    const int channels = source_.channels;
    std::uint8_t* pixels = scratch.packed.reserve(static_cast<std::size_t>(size.width) *
                                                  static_cast<std::size_t>(size.height) *
                                                  static_cast<std::size_t>(channels));
    const ImageView packed = interleaved(pixels, size, channels);
    ImageView window = source_;
    window.data = source_.at(x0, y0);
    move_pixels(kernels_, window, {0, 0, size.width, size.height},
                {pixels, 0, channels, packed.row, packed.pixel, packed.channel});
    source_ = packed;
    for (int i = 0; i < width; ++i) x_.first[i] -= x0;
    for (int i = 0; i < height; ++i) y_.first[i] -= y0;
    together = channels;
  }
  if (source_.pixel < 0) mirror(x_);

  int end = x_.first[0];
  base_ = end;
  for (int i = 0; i < width; ++i) {
    base_ = std::min(base_, x_.first[i]);
    end = std::max(end, x_.first[i] + x_.counts[i]);
  }
  for (int i = 0; i < width; ++i) x_.first[i] -= base_;
  width_ = end - base_;

  const auto groups = static_cast<std::size_t>(Windows::groups(width, together));
  const std::size_t pairs = static_cast<std::size_t>(x_.most + 1) / 2;
  const std::size_t bases = (static_cast<std::size_t>(width) * 4 + 63) / 64 * 64;
  std::uint8_t* windows =
      scratch.windows.reserve(bases + groups * pairs * Windows::kPair * sizeof(std::int16_t));
  windows_.bases = reinterpret_cast<std::int32_t*>(windows);
  windows_.orders_and_weights = reinterpret_cast<std::int16_t*>(windows + bases);
  kernels_.prepare_windows(x_, together, windows_);

  // Vector kernels read and write past the end of a line, as they may past an image's.
  const std::size_t line =
      (static_cast<std::size_t>(width_) * 3 * 2 + kTailSlack * 2 + 63) / 64 * 64;
  line_ = reinterpret_cast<std::int16_t*>(
      scratch.rows.reserve(line + static_cast<std::size_t>(width) * 3));
  levels_ = reinterpret_cast<std::uint8_t*>(line_) + line;
}

void Reducer::row(int y, int c, int channels, std::uint8_t* out) const {
  const int i = y - needed_.y0;
  const std::uint8_t* in = source_.data + y_.first[i] * source_.row +
                           static_cast<std::ptrdiff_t>(base_) * channels + c * source_.channel;
  kernels_.reduce_rows(in, source_.row, y_.weights + static_cast<std::ptrdiff_t>(i) * y_.stride,
                       y_.counts[i], width_ * channels, line_);
  kernels_.reduce_pixels(line_, x_, windows_, channels, out);
}

void Reducer::rows(int y0, int y1, const Canvas& canvas) const {
  const int together = channels_together(source_);
  const int width = needed_.x1 - needed_.x0;
  for (int y = y0; y < y1; ++y) {
    if (together == 3 && !canvas.interleaved()) {
      row(y, 0, 3, levels_);
      kernels_.split({levels_, 0, canvas.at(needed_.x0, y), 0, width, 1}, canvas.channel, false);
    } else if (together == 3 || source_.channels == 1) {
      row(y, 0, together, canvas.at(needed_.x0, y));
    } else if (!canvas.interleaved()) {
      for (int c = 0; c < 3; ++c) row(y, c, 1, canvas.at(needed_.x0, y, c));
    } else {
      for (int c = 0; c < 3; ++c) row(y, c, 1, levels_ + c * width);
      kernels_.join({levels_, 0, canvas.at(needed_.x0, y), 0, width, 1}, width, false);
    }
  }
}

}  // namespace millrace::augment
