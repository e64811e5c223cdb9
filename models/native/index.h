// Arithmetic of one output element of each op, for a thread of the CUDA kernels. Plain functions of
// contiguous memory (batch x channels x height x width) that also run on the host, where tests
// compare them with the CPU's ops.
//
// All are in gather form: one thread computes one element and each thread writes only its own
// element, so the order of sums, and with it the result, is fixed (contract Determinism).
#pragma once

#include <cstdint>

#include "models/native/geometry.h"

namespace millrace::train::native {

/// Coordinates of element `index` in a contiguous tensor with this many channels and pixels.
struct Position {
  std::int64_t n, c, h, w;
};

MILLRACE_HOST_DEVICE inline Position position_of(std::int64_t index, std::int64_t channels,
                                                 const Pair& side) {
  const std::int64_t row = index / side.w;
  const std::int64_t plane = row / side.h;
  return {plane / channels, plane % channels, row % side.h, index % side.w};
}

MILLRACE_HOST_DEVICE inline bool is_inside(std::int64_t h, std::int64_t w, const Pair& side) {
  return h >= 0 && h < side.h && w >= 0 && w < side.w;
}

/// Returns element `index`, in memory order, of the images that `g` makes of `levels`: an entry of
/// `tables`, which hold 256 words per channel.
template <class Word>
MILLRACE_HOST_DEVICE Word normalized_element(const NormalizeGeometry& g, std::int64_t index,
                                             const std::uint8_t* levels, const Word* tables) {
  const std::int64_t sample = index / (g.channels * g.pixels);
  const std::int64_t rest = index % (g.channels * g.pixels);
  const std::int64_t channel = g.to_pixels ? rest % g.channels : rest / g.pixels;
  const std::int64_t pixel = g.to_pixels ? rest / g.channels : rest % g.pixels;
  const std::int64_t from = g.from_pixels ? (sample * g.pixels + pixel) * g.channels + channel
                                          : (sample * g.channels + channel) * g.pixels + pixel;
  return tables[channel * 256 + levels[from]];
}

/// Returns whether value `other` of a row keeps `mine` from being the first largest. False for NaN.
MILLRACE_HOST_DEVICE inline bool is_beaten(const float* row, std::int64_t mine,
                                           std::int64_t other) {
  return other < mine ? row[other] >= row[mine] : other > mine && row[other] > row[mine];
}

/// Returns the output whose tap `tap` reads input `at`, along one axis; -1 if there is none.
MILLRACE_HOST_DEVICE inline std::int64_t output_reading(std::int64_t at, std::int64_t tap,
                                                        std::int64_t stride, std::int64_t padding,
                                                        std::int64_t dilation,
                                                        std::int64_t outputs) {
  const std::int64_t first = at + padding - tap * dilation;
  if (first < 0 || first % stride != 0 || first / stride >= outputs) return -1;
  return first / stride;
}

/// Returns output `index` of a convolution; `bias` may be null.
template <class T>
MILLRACE_HOST_DEVICE T conv_output(const ConvGeometry& g, std::int64_t index, const T* input,
                                   const T* weight, const T* bias) {
  const Position at = position_of(index, g.out, g.output);
  const std::int64_t first = at.c / g.group_out() * g.group_in();
  T sum = bias != nullptr ? bias[at.c] : T(0);
  for (std::int64_t c = 0; c < g.group_in(); ++c) {
    const T* const plane = input + (at.n * g.in + first + c) * g.input.h * g.input.w;
    const T* const taps = weight + (at.c * g.group_in() + c) * g.kernel.h * g.kernel.w;
    for (std::int64_t ky = 0; ky < g.kernel.h; ++ky) {
      const std::int64_t h = at.h * g.stride.h + ky * g.dilation.h - g.padding.h;
      for (std::int64_t kx = 0; kx < g.kernel.w; ++kx) {
        const std::int64_t w = at.w * g.stride.w + kx * g.dilation.w - g.padding.w;
        if (is_inside(h, w, g.input)) sum += taps[ky * g.kernel.w + kx] * plane[h * g.input.w + w];
      }
    }
  }
  return sum;
}

/// Returns element `index` of the gradient of a convolution's input.
template <class T>
MILLRACE_HOST_DEVICE T conv_input_gradient(const ConvGeometry& g, std::int64_t index,
                                           const T* gradient, const T* weight) {
  const Position at = position_of(index, g.in, g.input);
  const std::int64_t first = at.c / g.group_in() * g.group_out();
  T sum = T(0);
  for (std::int64_t ky = 0; ky < g.kernel.h; ++ky) {
    const std::int64_t h =
        output_reading(at.h, ky, g.stride.h, g.padding.h, g.dilation.h, g.output.h);
    if (h < 0) continue;
    for (std::int64_t kx = 0; kx < g.kernel.w; ++kx) {
      const std::int64_t w =
          output_reading(at.w, kx, g.stride.w, g.padding.w, g.dilation.w, g.output.w);
      if (w < 0) continue;
      for (std::int64_t o = first; o < first + g.group_out(); ++o)
        sum +=
            gradient[((at.n * g.out + o) * g.output.h + h) * g.output.w + w] *
            weight[((o * g.group_in() + at.c % g.group_in()) * g.kernel.h + ky) * g.kernel.w + kx];
    }
  }
  return sum;
}

/// Returns the sum that outputs `begin`, `begin` + `step`, ... of all samples' planes add to
/// element `index` of the weight's gradient. begin 0 and step 1 give the whole gradient.
template <class T>
MILLRACE_HOST_DEVICE T conv_weight_gradient(const ConvGeometry& g, std::int64_t index,
                                            const T* input, const T* gradient, std::int64_t begin,
                                            std::int64_t step) {
  const Position at = position_of(index, g.group_in(), g.kernel);  // n: channel of the output
  const std::int64_t channel = at.n / g.group_out() * g.group_in() + at.c;
  const std::int64_t pixels = g.output.h * g.output.w;
  T sum = T(0);
  for (std::int64_t i = begin; i < g.batch * pixels; i += step) {
    const std::int64_t sample = i / pixels;
    const std::int64_t pixel = i % pixels;
    const std::int64_t h = pixel / g.output.w * g.stride.h + at.h * g.dilation.h - g.padding.h;
    const std::int64_t w = pixel % g.output.w * g.stride.w + at.w * g.dilation.w - g.padding.w;
    if (is_inside(h, w, g.input))
      sum += gradient[(sample * g.out + at.n) * pixels + pixel] *
             input[((sample * g.in + channel) * g.input.h + h) * g.input.w + w];
  }
  return sum;
}

/// Returns that sum for element `channel` of the bias's gradient.
template <class T>
MILLRACE_HOST_DEVICE T conv_bias_gradient(const ConvGeometry& g, std::int64_t channel,
                                          const T* gradient, std::int64_t begin,
                                          std::int64_t step) {
  const std::int64_t pixels = g.output.h * g.output.w;
  T sum = T(0);
  for (std::int64_t i = begin; i < g.batch * pixels; i += step)
    sum += gradient[(i / pixels * g.out + channel) * pixels + i % pixels];
  return sum;
}

/// Returns the winner's position in its plane for output `index` of a max pooling.
template <class T>
MILLRACE_HOST_DEVICE std::int32_t pool_winner(const PoolGeometry& g, std::int64_t index,
                                              const T* input) {
  const Position at = position_of(index, g.channels, g.output);
  const T* const plane = input + (at.n * g.channels + at.c) * g.input.h * g.input.w;
  std::int64_t winner = -1;
  for (std::int64_t ky = 0; ky < g.kernel.h; ++ky) {
    const std::int64_t h = at.h * g.stride.h + ky * g.dilation.h - g.padding.h;
    for (std::int64_t kx = 0; kx < g.kernel.w; ++kx) {
      const std::int64_t w = at.w * g.stride.w + kx * g.dilation.w - g.padding.w;
      if (!is_inside(h, w, g.input)) continue;
      const std::int64_t pixel = h * g.input.w + w;
      const T value = plane[pixel];
      if (winner < 0 || value > plane[winner] || value != value) winner = pixel;
    }
  }
  return static_cast<std::int32_t>(winner);
}

/// Returns element `index` of the gradient of a max pooling's input.
template <class T>
MILLRACE_HOST_DEVICE T pool_input_gradient(const PoolGeometry& g, std::int64_t index,
                                           const T* gradient, const std::int32_t* winners) {
  const Position at = position_of(index, g.channels, g.input);
  const std::int64_t plane = (at.n * g.channels + at.c) * g.output.h * g.output.w;
  const std::int64_t pixel = at.h * g.input.w + at.w;
  T sum = T(0);
  // Descending taps give ascending outputs, the CPU's order.
  for (std::int64_t ky = g.kernel.h - 1; ky >= 0; --ky) {
    const std::int64_t h =
        output_reading(at.h, ky, g.stride.h, g.padding.h, g.dilation.h, g.output.h);
    if (h < 0) continue;
    for (std::int64_t kx = g.kernel.w - 1; kx >= 0; --kx) {
      const std::int64_t w =
          output_reading(at.w, kx, g.stride.w, g.padding.w, g.dilation.w, g.output.w);
      if (w < 0) continue;
      const std::int64_t output = plane + h * g.output.w + w;
      if (winners[output] == pixel) sum += gradient[output];
    }
  }
  return sum;
}

}  // namespace millrace::train::native
