// Moves pixels unchanged: copies, mirrors, and conversions between interleaved and planar.
#include <cstring>

#include "augment/kernels/kernels.h"
#include "augment/kernels/targets.h"

namespace millrace::augment {
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

#if MILLRACE_X86

// ---- AVX2: blocks of 16 and 32; what is left over at a row's end goes the scalar way

/// A byte order within 16 bytes; -1 gives zero.
struct Order16 {
  alignas(16) std::int8_t at[16];
};

MILLRACE_AVX2 inline __m128i shuffled(__m128i bytes, const Order16& order) {
  return _mm_shuffle_epi8(bytes, _mm_load_si128(reinterpret_cast<const __m128i*>(order.at)));
}

MILLRACE_AVX2 inline __m128i load16(const std::uint8_t* in) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
}

MILLRACE_AVX2 inline void store16(std::uint8_t* out, __m128i bytes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
}

constexpr Order16 kBackward{{15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}};

/// Returns where byte i of plane c lies in vector v of 48 bytes of RGB, or -1. With `backward`, of
/// pixel 15 - i.
constexpr Order16 split_order(int c, int v, bool backward) {
  Order16 order{};
  for (int i = 0; i < 16; ++i) {
    const int from = 3 * (backward ? 15 - i : i) + c - 16 * v;
    order.at[i] = static_cast<std::int8_t>(from >= 0 && from < 16 ? from : -1);
  }
  return order;
}

/// Returns where byte i of vector v of 48 bytes of RGB lies in plane c, or -1.
constexpr Order16 join_order(int c, int v, bool backward) {
  Order16 order{};
  for (int i = 0; i < 16; ++i) {
    const int byte = 16 * v + i;
    const int from = backward ? 15 - byte / 3 : byte / 3;
    order.at[i] = static_cast<std::int8_t>(byte % 3 == c ? from : -1);
  }
  return order;
}

struct Orders48 {
  Order16 at[3][3];  ///< [channel][vector]
};

template <class Function>
constexpr Orders48 orders48(Function&& order, bool backward) {
  Orders48 orders{};
  for (int c = 0; c < 3; ++c)
    for (int v = 0; v < 3; ++v) orders.at[c][v] = order(c, v, backward);
  return orders;
}

constexpr Orders48 kSplit[2] = {orders48(split_order, false), orders48(split_order, true)};
constexpr Orders48 kJoin[2] = {orders48(join_order, false), orders48(join_order, true)};

MILLRACE_AVX2 void reverse_avx2(const Block& b, int channels) {
  if (channels != 1 || b.width < 16) return reverse(b, channels);
  for (int y = 0; y < b.height; ++y) {
    const std::uint8_t* in = b.in + y * b.in_row;
    std::uint8_t* out = b.out + y * b.out_row;
    for (int x = 0; x + 16 <= b.width; x += 16)
      store16(out + x, shuffled(load16(in - x - 15), kBackward));
    const int last = b.width - 16;  // overlaps earlier pixels
    store16(out + last, shuffled(load16(in - last - 15), kBackward));
  }
}

MILLRACE_AVX2 void split_avx2(const Block& b, std::ptrdiff_t plane, bool reversed) {
  if (b.width < 16) return split(b, plane, reversed);
  const Orders48& orders = kSplit[reversed];
  for (int y = 0; y < b.height; ++y) {
    for (int x = 0;; x = x + 32 <= b.width ? x + 16 : b.width - 16) {
      const std::uint8_t* in = b.in + y * b.in_row + (reversed ? -3 * (x + 15) : 3 * x);
      std::uint8_t* out = b.out + y * b.out_row + x;
      const __m128i v0 = load16(in), v1 = load16(in + 16), v2 = load16(in + 32);
      for (int c = 0; c < 3; ++c) {
        const Order16* order = orders.at[c];
        store16(out + c * plane,
                _mm_or_si128(_mm_or_si128(shuffled(v0, order[0]), shuffled(v1, order[1])),
                             shuffled(v2, order[2])));
      }
      if (x + 16 >= b.width) break;
    }
  }
}

MILLRACE_AVX2 void join_avx2(const Block& b, std::ptrdiff_t plane, bool reversed) {
  if (b.width < 16) return join(b, plane, reversed);
  const Orders48& orders = kJoin[reversed];
  for (int y = 0; y < b.height; ++y) {
    for (int x = 0;; x = x + 32 <= b.width ? x + 16 : b.width - 16) {
      const std::uint8_t* in = b.in + y * b.in_row + (reversed ? -(x + 15) : x);
      std::uint8_t* out = b.out + y * b.out_row + 3 * x;
      const __m128i r = load16(in), g = load16(in + plane), bl = load16(in + 2 * plane);
      for (int v = 0; v < 3; ++v)
        store16(out + 16 * v, _mm_or_si128(_mm_or_si128(shuffled(r, orders.at[0][v]),
                                                        shuffled(g, orders.at[1][v])),
                                           shuffled(bl, orders.at[2][v])));
      if (x + 16 >= b.width) break;
    }
  }
}

// ---- AVX-512: blocks of 64 with masks for what is left over

struct Order64 {
  alignas(64) std::uint8_t at[64];
};

template <class Function>
constexpr Order64 order64(Function&& function) {
  Order64 order{};
  for (int i = 0; i < 64; ++i) order.at[i] = static_cast<std::uint8_t>(function(i));
  return order;
}

constexpr Order64 kBackward64 = order64([](int i) { return 63 - i; });
constexpr Order64 kBackwardRgb =
    order64([](int i) { return i < 63 ? 3 * (20 - i / 3) + i % 3 : 63; });
/// Positions of plane 0's bytes among 192 bytes of RGB.
constexpr Order64 kEveryThird = order64([](int i) { return 3 * i; });
constexpr Order64 kEveryThirdBackward = order64([](int i) { return 3 * (63 - i); });
/// Sources of byte i in the v-th 64 bytes of RGB: the pixel, plus 64 for green and 128 for blue.
constexpr Order64 kWeave[3] = {order64([](int i) { return i / 3 + i % 3 * 64; }),
                               order64([](int i) { return (i + 64) / 3 + (i + 64) % 3 * 64; }),
                               order64([](int i) { return (i + 128) / 3 + (i + 128) % 3 * 64; })};

MILLRACE_AVX512 inline __m512i load(const Order64& order) { return _mm512_load_si512(order.at); }

/// Returns a mask of the lowest n bits; n may lie outside of 0..64.
MILLRACE_AVX512 inline __mmask64 first(int n) {
  return n >= 64 ? ~__mmask64{0} : n <= 0 ? 0 : (__mmask64{1} << n) - 1;
}

/// Selects bytes of (a, b, c) by index 0..191.
MILLRACE_AVX512 inline __m512i permuted(__m512i a, __m512i b, __m512i c, __m512i index) {
  return _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(a, index, b),
                                      _mm512_movepi8_mask(index), index, c);
}

// Works in columns of 64 bytes, down all rows: masks and orders are made once per column, and the
// tile moved at a time fits the first-level cache.

MILLRACE_AVX512 void fill_512(std::uint8_t* out, std::ptrdiff_t row, int bytes, int rows,
                              std::uint8_t level) {
  if (bytes > 256) return fill(out, row, bytes, rows, level);
  const __m512i levels = _mm512_set1_epi8(static_cast<char>(level));
  for (int x = 0; x < bytes; x += 64) {
    const __mmask64 valid = first(bytes - x);
    std::uint8_t* to = out + x;
    for (int y = 0; y < rows; ++y, to += row) _mm512_mask_storeu_epi8(to, valid, levels);
  }
}

MILLRACE_AVX512 void copy_512(const Block& b) {
  if (b.width > 256) return copy(b);
  for (int x = 0; x < b.width; x += 64) {
    const __mmask64 valid = first(b.width - x);
    const std::uint8_t* in = b.in + x;
    std::uint8_t* out = b.out + x;
    for (int y = 0; y < b.height; ++y, in += b.in_row, out += b.out_row)
      _mm512_mask_storeu_epi8(out, valid, _mm512_maskz_loadu_epi8(valid, in));
  }
}

MILLRACE_AVX512 void reverse_512(const Block& b, int channels) {
  const int most = channels == 1 ? 64 : 21;
  const __m512i backward = load(channels == 1 ? kBackward64 : kBackwardRgb);
  for (int x = 0; x < b.width; x += most) {
    const int n = b.width - x < most ? b.width - x : most;
    const __mmask64 valid = first(n * channels);
    const __m512i order =
        _mm512_sub_epi8(backward, _mm512_set1_epi8(static_cast<char>((most - n) * channels)));
    const std::uint8_t* in = b.in - (x + n - 1) * channels;
    std::uint8_t* out = b.out + x * channels;
    for (int y = 0; y < b.height; ++y, in += b.in_row, out += b.out_row)
      _mm512_mask_storeu_epi8(out, valid,
                              _mm512_permutexvar_epi8(order, _mm512_maskz_loadu_epi8(valid, in)));
  }
}

MILLRACE_AVX512 void split_512(const Block& b, std::ptrdiff_t plane, bool reversed) {
  for (int x = 0; x < b.width; x += 64) {
    const int n = b.width - x < 64 ? b.width - x : 64;
    __m512i red = load(kEveryThird);
    if (reversed)
      red = _mm512_sub_epi8(load(kEveryThirdBackward),
                            _mm512_set1_epi8(static_cast<char>(3 * (64 - n))));
    const __m512i green = _mm512_add_epi8(red, _mm512_set1_epi8(1));
    const __m512i blue = _mm512_add_epi8(red, _mm512_set1_epi8(2));
    const __mmask64 valid = first(n), valid0 = first(3 * n), valid1 = first(3 * n - 64),
                    valid2 = first(3 * n - 128);
    const std::uint8_t* in = b.in + (reversed ? -3 * (x + n - 1) : 3 * x);
    std::uint8_t* out = b.out + x;
    for (int y = 0; y < b.height; ++y, in += b.in_row, out += b.out_row) {
      const __m512i v0 = _mm512_maskz_loadu_epi8(valid0, in);
      const __m512i v1 = _mm512_maskz_loadu_epi8(valid1, in + 64);
      const __m512i v2 = _mm512_maskz_loadu_epi8(valid2, in + 128);
      _mm512_mask_storeu_epi8(out, valid, permuted(v0, v1, v2, red));
      _mm512_mask_storeu_epi8(out + plane, valid, permuted(v0, v1, v2, green));
      _mm512_mask_storeu_epi8(out + 2 * plane, valid, permuted(v0, v1, v2, blue));
    }
  }
}

MILLRACE_AVX512 void join_512(const Block& b, std::ptrdiff_t plane, bool reversed) {
  for (int x = 0; x < b.width; x += 64) {
    const int n = b.width - x < 64 ? b.width - x : 64;
    const __mmask64 valid = first(n);
    const __m512i mirrored =
        _mm512_sub_epi8(load(kBackward64), _mm512_set1_epi8(static_cast<char>(64 - n)));
    const std::uint8_t* in = b.in + (reversed ? -(x + n - 1) : x);
    std::uint8_t* out = b.out + 3 * x;
    for (int y = 0; y < b.height; ++y, in += b.in_row, out += b.out_row) {
      __m512i planes[3];
      for (int c = 0; c < 3; ++c) {
        planes[c] = _mm512_maskz_loadu_epi8(valid, in + c * plane);
        if (reversed) planes[c] = _mm512_permutexvar_epi8(mirrored, planes[c]);
      }
      for (int v = 0; v < 3; ++v)
        _mm512_mask_storeu_epi8(out + 64 * v, first(3 * n - 64 * v),
                                permuted(planes[0], planes[1], planes[2], load(kWeave[v])));
    }
  }
}

#endif

}  // namespace

void add_move_kernels([[maybe_unused]] base::Simd level, Kernels& table) {
  table.fill = fill;
  table.copy = copy;
  table.reverse = reverse;
  table.split = split;
  table.join = join;
#if MILLRACE_X86
  if (level == base::Simd::avx2) {
    table.reverse = reverse_avx2;
    table.split = split_avx2;
    table.join = join_avx2;
  }
  if (level == base::Simd::avx512) {
    table.fill = fill_512;
    table.copy = copy_512;
    table.reverse = reverse_512;
    table.split = split_512;
    table.join = join_512;
  }
#endif
}

}  // namespace millrace::augment
