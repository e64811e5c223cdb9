// Pixels that are moved and not changed: copies, mirrors, interleaved to planar and back.
#include <cstring>

#include "augment/kernels/kernels.h"

namespace millrace {
namespace {

void fill(std::uint8_t* out, std::ptrdiff_t row, int bytes, int rows, std::uint8_t level) {
  for (int y = 0; y < rows; ++y) std::memset(out + y * row, level, static_cast<std::size_t>(bytes));
}

void copy(const Block& b) {
  for (int y = 0; y < b.height; ++y)
    std::memcpy(b.out + y * b.out_row, b.in + y * b.in_row, static_cast<std::size_t>(b.width));
}

void reverse(const Block& b, int channels) {
  for (int y = 0; y < b.height; ++y) {
    const std::uint8_t* in = b.in + y * b.in_row;
    std::uint8_t* out = b.out + y * b.out_row;
    for (int x = 0; x < b.width; ++x, in -= channels)
      for (int c = 0; c < channels; ++c) *out++ = in[c];
  }
}

void split(const Block& b, std::ptrdiff_t plane, bool reversed) {
  const int step = reversed ? -3 : 3;
  for (int y = 0; y < b.height; ++y) {
    const std::uint8_t* in = b.in + y * b.in_row;
    std::uint8_t* out = b.out + y * b.out_row;
    for (int x = 0; x < b.width; ++x, in += step)
      for (int c = 0; c < 3; ++c) out[c * plane + x] = in[c];
  }
}

void join(const Block& b, std::ptrdiff_t plane, bool reversed) {
  const int step = reversed ? -1 : 1;
  for (int y = 0; y < b.height; ++y) {
    const std::uint8_t* in = b.in + y * b.in_row;
    std::uint8_t* out = b.out + y * b.out_row;
    for (int x = 0; x < b.width; ++x, in += step)
      for (int c = 0; c < 3; ++c) *out++ = in[c * plane];
  }
}

}  // namespace

void add_move_kernels(Simd, Kernels& table) {
  table.fill = fill;
  table.copy = copy;
  table.reverse = reverse;
  table.split = split;
  table.join = join;
}

}  // namespace millrace
