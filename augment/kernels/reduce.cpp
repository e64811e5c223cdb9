// Filter::reduce: weighted sums of rows, then of the pixels of a row.
#include "augment/kernels/kernels.h"

namespace millrace {
namespace {

void reduce_rows(const std::uint8_t* in, std::ptrdiff_t row, const std::int16_t* weights, int taps,
                 int bytes, std::int16_t* out) {
  constexpr int kDrop = kTapBits - kRowBits;
  for (int i = 0; i < bytes; ++i) {
    std::int32_t sum = 1 << (kDrop - 1);
    for (int k = 0; k < taps; ++k) sum += weights[k] * in[k * row + i];
    out[i] = static_cast<std::int16_t>(sum >> kDrop);
  }
}

void reduce_pixels(const std::int16_t* in, const Taps& taps, int channels, std::uint8_t* out) {
  constexpr int kDrop = kTapBits + kRowBits;
  for (int o = 0; o < taps.outputs; ++o) {
    const std::int16_t* weights = taps.weights + static_cast<std::ptrdiff_t>(o) * taps.stride;
    const std::int16_t* from = in + static_cast<std::ptrdiff_t>(taps.first[o]) * channels;
    for (int c = 0; c < channels; ++c) {
      std::int32_t sum = 1 << (kDrop - 1);
      for (int k = 0; k < taps.counts[o]; ++k) sum += weights[k] * from[k * channels + c];
      *out++ = static_cast<std::uint8_t>(sum >> kDrop);
    }
  }
}

}  // namespace

void add_reduce_kernels(Simd, Kernels& table) {
  table.reduce_rows = reduce_rows;
  table.reduce_pixels = reduce_pixels;
}

}  // namespace millrace
