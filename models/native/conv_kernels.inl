// The kernels' text, compiled once an instruction set: the file that includes this one says
//   MILLRACE_VECTOR_BYTES   of a vector
//   MILLRACE_VECTOR_TARGET  the attribute that allows its instructions
//   MILLRACE_PIXEL_TILE     output pixels whose sums fit the registers beside 6 channels
//   MILLRACE_WEIGHT_TILE    output channels whose sums fit them beside 5 taps
// Everything lies in an anonymous namespace and carries the attribute: no other file can be given
// code that the processor lacks. Contraction to fused multiply-and-add is on for these files.
#include <algorithm>
#include <cstring>

#include "models/native/conv_kernels.h"
#include "models/native/vectors.h"

namespace millrace::native {
namespace {

template <class T>
inline constexpr std::int64_t kLanes = MILLRACE_VECTOR_BYTES / static_cast<int>(sizeof(T));
template <class T>
using Vector = typename VectorOf<T, MILLRACE_VECTOR_BYTES>::type;
template <class T>
using Mask = typename VectorOf<typename MaskElement<T>::type, MILLRACE_VECTOR_BYTES>::type;
template <class T>
using Bytes = typename VectorOf<std::uint8_t, MILLRACE_VECTOR_BYTES / int{sizeof(T)}>::type;

#define MILLRACE_KERNEL MILLRACE_VECTOR_TARGET inline __attribute__((always_inline))

template <class T>
MILLRACE_KERNEL const Vector<T>* vectors(const T* block) {
  return reinterpret_cast<const Vector<T>*>(block);
}
template <class T>
MILLRACE_KERNEL Vector<T>* vectors(T* block) {
  return reinterpret_cast<Vector<T>*>(block);
}

// ---- packing ----------------------------------------------------------------------------------

/// Position of `coordinate` of a window among the image's rows or columns; -1: not one of them.
MILLRACE_KERNEL std::int64_t source_of(std::int64_t coordinate, std::int64_t insert,
                                       std::int64_t side) {
  if (coordinate < 0 || coordinate % insert != 0 || coordinate / insert >= side) return -1;
  return coordinate / insert;
}

/// The first of `count` coordinates from `from` on that an image has, and one behind the last.
struct Range {
  std::int64_t begin, end;
};
MILLRACE_KERNEL Range inside(std::int64_t from, std::int64_t count, std::int64_t side) {
  const std::int64_t begin = std::clamp<std::int64_t>(-from, 0, count);
  return {begin, std::clamp<std::int64_t>(side - from, begin, count)};
}

/// Four samples' runs of four elements to four pixels' lanes.
template <class T>
MILLRACE_KERNEL void transpose4(const T* from, std::int64_t from_step, T* to,
                                std::int64_t to_step) {
  typedef T Four __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));
  const Four a = *reinterpret_cast<const Four*>(from);
  const Four b = *reinterpret_cast<const Four*>(from + from_step);
  const Four c = *reinterpret_cast<const Four*>(from + 2 * from_step);
  const Four d = *reinterpret_cast<const Four*>(from + 3 * from_step);
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *reinterpret_cast<Four*>(to) = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  *reinterpret_cast<Four*>(to + to_step) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  *reinterpret_cast<Four*>(to + 2 * to_step) =
      __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  *reinterpret_cast<Four*>(to + 3 * to_step) =
      __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

/// rows x columns elements, rows `from_step` and `to_step` apart, transposed.
template <class T>
MILLRACE_KERNEL void transpose(const T* from, std::int64_t from_step, std::int64_t rows,
                               std::int64_t columns, T* to, std::int64_t to_step) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    std::int64_t column = 0;
    for (; column + 4 <= columns; column += 4)
      transpose4(from + row * from_step + column, from_step, to + column * to_step + row, to_step);
    for (; column < columns; ++column)
      for (std::int64_t i = row; i < row + 4; ++i)
        to[column * to_step + i] = from[i * from_step + column];
  }
  for (; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      to[column * to_step + row] = from[row * from_step + column];
}

template <class T>
MILLRACE_VECTOR_TARGET void pack(const View<const T>& from, std::int64_t used,
                                 const Window& window, T* block) {
  constexpr std::int64_t lanes = kLanes<T>;
  const Range valid = inside(window.column, window.columns, window.image.w);
  for (std::int64_t c = 0; c < window.channels; ++c) {
    for (std::int64_t r = 0; r < window.rows; ++r, block += window.columns * lanes) {
      const std::int64_t row = source_of(window.row + r, window.insert.h, window.image.h);
      if (row < 0) {
        std::fill_n(block, window.columns * lanes, T{0});
        continue;
      }
      const T* const source = from.data + c * from.c + row * from.h;
      if (window.insert.w != 1) {
        std::fill_n(block, window.columns * lanes, T{0});
        for (std::int64_t x = 0; x < window.columns; ++x) {
          const std::int64_t column =
              source_of(window.column + x, window.insert.w, window.image.w);
          if (column < 0) continue;
          for (std::int64_t l = 0; l < used; ++l)
            block[x * lanes + l] = source[column * from.w + l * from.n];
        }
        continue;
      }
      std::fill_n(block, valid.begin * lanes, T{0});
      std::fill_n(block + valid.end * lanes, (window.columns - valid.end) * lanes, T{0});
      T* const to = block + valid.begin * lanes;
      const std::int64_t count = valid.end - valid.begin;
      if (used < lanes) std::fill_n(to, count * lanes, T{0});
      const T* const first = source + (window.column + valid.begin) * from.w;
      if (from.n == 1 && used == lanes) {
        for (std::int64_t x = 0; x < count; ++x)
          std::memcpy(to + x * lanes, first + x * from.w, lanes * sizeof(T));
      } else if (from.w == 1) {
        transpose(first, from.n, used, count, to, lanes);
      } else {
        for (std::int64_t x = 0; x < count; ++x)
          for (std::int64_t l = 0; l < used; ++l)
            to[x * lanes + l] = first[x * from.w + l * from.n];
      }
    }
  }
}

template <class T>
MILLRACE_VECTOR_TARGET void unpack(const T* block, std::int64_t used, const Window& window,
                                   const View<T>& to) {
  constexpr std::int64_t lanes = kLanes<T>;
  for (std::int64_t c = 0; c < window.channels; ++c) {
    for (std::int64_t r = 0; r < window.rows; ++r, block += window.columns * lanes) {
      T* const row = to.data + c * to.c + (window.row + r) * to.h;
      if (to.n == 1 && used == lanes) {
        for (std::int64_t x = 0; x < window.columns; ++x)
          std::memcpy(row + x * to.w, block + x * lanes, lanes * sizeof(T));
      } else if (to.w == 1) {
        transpose(block, lanes, window.columns, used, row, to.n);
      } else {
        for (std::int64_t x = 0; x < window.columns; ++x)
          for (std::int64_t l = 0; l < used; ++l) row[x * to.w + l * to.n] = block[x * lanes + l];
      }
    }
  }
}

// ---- correlation ------------------------------------------------------------------------------

/// Taps [begin, end) of an axis that may see the image, for outputs whose first tap lies at window
/// coordinates `first` to `last`; zeros that lie between pixels count as seen.
MILLRACE_KERNEL Range taps_inside(std::int64_t first, std::int64_t last, std::int64_t taps,
                                  std::int64_t dilation, std::int64_t side) {
  const std::int64_t begin = last >= 0 ? 0 : (-last + dilation - 1) / dilation;
  const std::int64_t end = first >= side ? 0 : (side - 1 - first) / dilation + 1;
  return {std::min(begin, taps), std::clamp(end, std::min(begin, taps), taps)};
}

/// kChannels output channels of kPixels output pixels side by side.
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

/// kChannels output channels, whole rows. `in` is the group's.
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

/// Sum of kCount neighbours, a power of two, as a tree.
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

/// kChannels output channels by kTaps taps of a row of the kernel. `in` and `gradient` are their
/// first; weight gradients of the channels lie `weight_step` apart.
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

/// All taps of one input channel for kChannels output channels.
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

// ---- ReLU and 2x2 pooling ---------------------------------------------------------------------

template <class T>
MILLRACE_VECTOR_TARGET void relu_pool(const T* block, std::int64_t channels, Pair size, T* pooled,
                                      std::uint8_t* winners, std::int64_t winner_step) {
  using Element = typename MaskElement<T>::type;
  Vector<T>* out = vectors(pooled);
  for (std::int64_t c = 0; c < channels; ++c) {
    auto* winner = reinterpret_cast<Bytes<T>*>(winners + c * winner_step);
    for (std::int64_t y = 0; y < size.h / 2; ++y) {
      const Vector<T>* const row = vectors(block) + (c * size.h + 2 * y) * size.w;
      for (std::int64_t x = 0; x < size.w / 2; ++x) {
        Vector<T> best{};
        Mask<T> index = Element{kNoWinner} - Mask<T>{};
        for (int k = 0; k < 4; ++k) {
          const Vector<T> value = row[k / 2 * size.w + 2 * x + k % 2];
          const Mask<T> wins = (value > best) | (value != value);
          best = wins ? value : best;
          index = wins ? Element{k} - Mask<T>{} : index;
        }
        *out++ = best;
        *winner++ = __builtin_convertvector(index, Bytes<T>);
      }
    }
  }
}

template <class T>
MILLRACE_VECTOR_TARGET void unpool(const T* pooled, const std::uint8_t* winners,
                                   const Window& window, T* block) {
  using Element = typename MaskElement<T>::type;
  const std::int64_t height = window.image.h / 2;
  const std::int64_t width = window.image.w / 2;
  for (std::int64_t c = 0; c < window.channels; ++c) {
    for (std::int64_t r = 0; r < window.rows; ++r, block += window.columns * kLanes<T>) {
      const std::int64_t row = window.row + r;
      std::fill_n(block, window.columns * kLanes<T>, T{0});
      if (row < 0 || row >= window.image.h) continue;
      const std::int64_t first = (c * height + row / 2) * width;
      const Vector<T>* delta = vectors(pooled) + first;
      const auto* winner = reinterpret_cast<const Bytes<T>*>(winners) + first;
      Vector<T>* out = vectors(block) - window.column;
      const Mask<T> left = Element(row % 2 * 2) - Mask<T>{};
      for (std::int64_t x = 0; x < width; ++x, out += 2) {
        const Mask<T> index = __builtin_convertvector(winner[x], Mask<T>);
        out[0] = index == left ? delta[x] : Vector<T>{};
        out[1] = index == left + 1 ? delta[x] : Vector<T>{};
      }
    }
  }
}

template <class T>
constexpr ConvKernels<T> make_table() {
  return {kLanes<T>,  pack<T>,  unpack<T>, correlate<T>, add_weight_gradient<T>,
          relu_pool<T>, unpool<T>};
}

}  // namespace
}  // namespace millrace::native
