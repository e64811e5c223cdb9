// Source of the kernels, compiled once per instruction set. The including file defines
//   MILLRACE_VECTOR_BYTES   bytes of a vector
//   MILLRACE_VECTOR_TARGET  attribute that enables the instructions
//   MILLRACE_PIXEL_TILE     output pixels whose sums fit the registers beside 6 channels
//   MILLRACE_WEIGHT_TILE    output channels whose sums fit the registers beside 5 taps
//
// Everything is in an anonymous namespace and carries the attribute, so that no other file can be
// linked with code that the processor lacks. These files contract to fused multiply-add.
#include "models/native/packed.inl"

namespace millrace::train::native {
namespace {

// ---- correlation ------------------------------------------------------------------------------

/// Returns the taps [begin, end) of an axis that may fall in the image, for outputs whose first tap
/// lies at window coordinates `first` to `last`. Inserted zeros between pixels count as part of the
/// image.
MILLRACE_KERNEL Range taps_inside(std::int64_t first, std::int64_t last, std::int64_t taps,
                                  std::int64_t dilation, std::int64_t side) {
  const std::int64_t begin = last >= 0 ? 0 : (-last + dilation - 1) / dilation;
  const std::int64_t end = first >= side ? 0 : (side - 1 - first) / dilation + 1;
  return {std::min(begin, taps), std::clamp(end, std::min(begin, taps), taps)};
}

/// Computes kPixels adjacent output pixels of kChannels output channels.
template <class T, int kChannels, int kPixels>
MILLRACE_VECTOR_TARGET void correlate_tile(const Correlation<T>& job, const T* in, Range rows,
                                           Range columns, const T* weights, const T* bias,
                                           T* out) {
  const std::int64_t in_row = job.window.columns;
  const std::int64_t in_channel = in_row * job.window.rows;
  Vector<T> sums[kChannels][kPixels];
  for (int o = 0; o < kChannels; ++o)
    for (int x = 0; x < kPixels; ++x)
      sums[o][x] = (bias != nullptr ? bias[o] : T{0}) - Vector<T>{};
  for (std::int64_t c = 0; c < job.window.channels / job.groups; ++c) {
    for (std::int64_t ky = rows.begin; ky < rows.end; ++ky) {
      const Vector<T>* taps = vectors(in) + c * in_channel + ky * job.dilation.h * in_row +
                              columns.begin * job.dilation.w;
      const T* weight =
          weights + ((c * job.kernel.h + ky) * job.kernel.w + columns.begin) * kChannels;
      for (std::int64_t kx = columns.begin; kx < columns.end; ++kx) {
        Vector<T> pixels[kPixels];
        for (int x = 0; x < kPixels; ++x) pixels[x] = taps[x * job.stride.w];
        for (int o = 0; o < kChannels; ++o) {
          const Vector<T> factor = weight[o] - Vector<T>{};
          for (int x = 0; x < kPixels; ++x) sums[o][x] += factor * pixels[x];
        }
        taps += job.dilation.w;
        weight += kChannels;
      }
    }
  }
  for (int o = 0; o < kChannels; ++o)
    for (int x = 0; x < kPixels; ++x)
      vectors(out)[o * job.rows * job.columns + x] = sums[o][x];
}

/// Computes whole rows of kChannels output channels. `in` belongs to the group.
template <class T, int kChannels>
MILLRACE_VECTOR_TARGET void correlate_channels(const Correlation<T>& job, const T* in,
                                               const T* weights, const T* bias, T* out) {
  const Window& window = job.window;
  const std::int64_t height = (window.image.h - 1) * window.insert.h + 1;
  const std::int64_t width = (window.image.w - 1) * window.insert.w + 1;
  for (std::int64_t y = 0; y < job.rows; ++y) {
    const std::int64_t first_row = window.row + y * job.stride.h;
    const Range rows = taps_inside(first_row, first_row, job.kernel.h, job.dilation.h, height);
    for (std::int64_t x = 0; x < job.columns;) {
      const std::int64_t left = job.columns - x;
      const std::int64_t pixels =
          left >= MILLRACE_PIXEL_TILE ? MILLRACE_PIXEL_TILE : left >= 2 ? 2 : 1;
      const std::int64_t first = window.column + x * job.stride.w;
      const Range columns = taps_inside(first, first + (pixels - 1) * job.stride.w, job.kernel.w,
                                        job.dilation.w, width);
      const T* const from =
          in + (y * job.stride.h * window.columns + x * job.stride.w) * kLanes<T>;
      T* const to = out + (y * job.columns + x) * kLanes<T>;
      if (pixels == MILLRACE_PIXEL_TILE)
        // NOLINTNEXTLINE(bugprone-branch-clone): at some levels a tile has 2 pixels
        correlate_tile<T, kChannels, MILLRACE_PIXEL_TILE>(job, from, rows, columns, weights, bias,
                                                          to);
      else if (pixels == 2)
        correlate_tile<T, kChannels, 2>(job, from, rows, columns, weights, bias, to);
      else
        correlate_tile<T, kChannels, 1>(job, from, rows, columns, weights, bias, to);
      x += pixels;
    }
  }
}

template <class T>
MILLRACE_VECTOR_TARGET void correlate(const Correlation<T>& job) {
  const std::int64_t group_in = job.window.channels / job.groups;
  const std::int64_t group_out = job.out_channels / job.groups;
  const std::int64_t taps = group_in * job.kernel.h * job.kernel.w;
  for (std::int64_t group = 0; group < job.groups; ++group) {
    const T* const in =
        job.in + group * group_in * job.window.rows * job.window.columns * kLanes<T>;
    for (std::int64_t o = 0; o < group_out;) {
      const std::int64_t channel = group * group_out + o;
      const T* const weights = job.weights + channel * taps;
      const T* const bias = job.bias != nullptr ? job.bias + channel : nullptr;
      T* const out = job.out + channel * job.rows * job.columns * kLanes<T>;
      const std::int64_t left = group_out - o;
      if (left >= 6) {
        correlate_channels<T, 6>(job, in, weights, bias, out);
        o += 6;
      } else if (left >= 4) {
        correlate_channels<T, 4>(job, in, weights, bias, out);
        o += 4;
      } else if (left >= 2) {
        correlate_channels<T, 2>(job, in, weights, bias, out);
        o += 2;
      } else {
        correlate_channels<T, 1>(job, in, weights, bias, out);
        o += 1;
      }
    }
  }
}

// ---- gradients of the weight ------------------------------------------------------------------

/// Returns the sum of kCount adjacent values, a power of two, added as a tree.
template <class T, int kCount>
MILLRACE_KERNEL T sum(T* values) {
  if constexpr (kCount == 1) {
    return *values;
  } else {
    using Half = typename VectorOf<T, kCount / 2 * int{sizeof(T)}>::type;
    auto* const halves = reinterpret_cast<Half*>(values);
    halves[0] += halves[1];
    return sum<T, kCount / 2>(values);
  }
}

/// Computes kTaps taps of a kernel row for kChannels output channels. `in` and `gradient` point to
/// the first ones; the channels' weight gradients are `weight_step` apart.
template <class T, int kChannels, int kTaps>
MILLRACE_VECTOR_TARGET void weight_tile(const WeightGradient<T>& job, const T* in,
                                        const T* gradient, T* weight, std::int64_t weight_step) {
  Vector<T> sums[kChannels][kTaps] = {};
  const std::int64_t channel = job.rows * job.columns;
  for (std::int64_t y = 0; y < job.rows; ++y) {
    const Vector<T>* pixels = vectors(in) + y * job.stride.h * job.window.columns;
    const Vector<T>* deltas = vectors(gradient) + y * job.columns;
    for (std::int64_t x = 0; x < job.columns; ++x) {
      Vector<T> delta[kChannels];
      for (int o = 0; o < kChannels; ++o) delta[o] = deltas[o * channel];
      for (int k = 0; k < kTaps; ++k) {
        const Vector<T> pixel = pixels[k * job.dilation.w];
        for (int o = 0; o < kChannels; ++o) sums[o][k] += delta[o] * pixel;
      }
      pixels += job.stride.w;
      ++deltas;
    }
  }
  for (int o = 0; o < kChannels; ++o) {
    for (int k = 0; k < kTaps; ++k) {
      alignas(64) T values[kLanes<T>];
      *vectors(values) = sums[o][k];
      weight[o * weight_step + k] += sum<T, kLanes<T>>(values);
    }
  }
}

/// Computes all taps of one input channel for kChannels output channels.
template <class T, int kChannels>
MILLRACE_VECTOR_TARGET void weight_channels(const WeightGradient<T>& job, const T* in,
                                            const T* gradient, T* weight,
                                            std::int64_t weight_step) {
  for (std::int64_t ky = 0; ky < job.kernel.h; ++ky) {
    const T* const row = in + ky * job.dilation.h * job.window.columns * kLanes<T>;
    for (std::int64_t kx = 0; kx < job.kernel.w;) {
      const T* const from = row + kx * job.dilation.w * kLanes<T>;
      T* const to = weight + ky * job.kernel.w + kx;
      const std::int64_t left = job.kernel.w - kx;
      if (left >= 5) {
        weight_tile<T, kChannels, 5>(job, from, gradient, to, weight_step);
        kx += 5;
      } else if (left >= 3) {
        weight_tile<T, kChannels, 3>(job, from, gradient, to, weight_step);
        kx += 3;
      } else {
        weight_tile<T, kChannels, 1>(job, from, gradient, to, weight_step);
        kx += 1;
      }
    }
  }
}

template <class T>
MILLRACE_VECTOR_TARGET void add_bias_gradient(const WeightGradient<T>& job) {
  const Vector<T>* deltas = vectors(job.gradient);
  const std::int64_t pixels = job.rows * job.columns;
  for (std::int64_t o = 0; o < job.out_channels; ++o) {
    Vector<T> total{};
    for (std::int64_t i = 0; i < pixels; ++i) total += *deltas++;
    alignas(64) T values[kLanes<T>];
    *vectors(values) = total;
    job.bias[o] += sum<T, kLanes<T>>(values);
  }
}

template <class T>
MILLRACE_VECTOR_TARGET void add_weight_gradient(const WeightGradient<T>& job) {
  const std::int64_t group_in = job.window.channels / job.groups;
  const std::int64_t group_out = job.out_channels / job.groups;
  const std::int64_t taps = job.kernel.h * job.kernel.w;
  if (job.bias != nullptr) add_bias_gradient(job);
  for (std::int64_t group = 0; group < job.groups; ++group) {
    for (std::int64_t o = 0; o < group_out;) {
      const std::int64_t channel = group * group_out + o;
      const std::int64_t left = group_out - o;
      const std::int64_t tile = left >= MILLRACE_WEIGHT_TILE ? MILLRACE_WEIGHT_TILE
                                : left >= 2                  ? 2
                                                             : 1;
      const T* const gradient = job.gradient + channel * job.rows * job.columns * kLanes<T>;
      for (std::int64_t c = 0; c < group_in; ++c) {
        const T* const in = job.in + (group * group_in + c) * job.window.rows *
                                         job.window.columns * kLanes<T>;
        T* const weight = job.weight + (channel * group_in + c) * taps;
        if (tile == MILLRACE_WEIGHT_TILE)
          // NOLINTNEXTLINE(bugprone-branch-clone): at some levels a tile has 2 channels
          weight_channels<T, MILLRACE_WEIGHT_TILE>(job, in, gradient, weight, group_in * taps);
        else if (tile == 2)
          weight_channels<T, 2>(job, in, gradient, weight, group_in * taps);
        else
          weight_channels<T, 1>(job, in, gradient, weight, group_in * taps);
      }
      o += tile;
    }
  }
}

template <class T>
constexpr ConvKernels<T> make_table() {
  return {kLanes<T>,  pack<T>,  unpack<T>, correlate<T>, add_weight_gradient<T>,
          relu_pool<T>, unpool<T>};
}

}  // namespace
}  // namespace millrace::train::native
