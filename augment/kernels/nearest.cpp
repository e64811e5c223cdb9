// Filter::nearest: takes the pixel whose square holds the position.
#include <algorithm>
#include <cstring>

#include "augment/kernels/pixels_x86.h"
#include "augment/kernels/warp_positions.h"

namespace millrace::augment {
namespace {

template <int kChannels>
void nearest(const WarpBlock& shared, const Rect& rect, const Canvas& shared_canvas) {
  const WarpBlock warp = shared;  // a copy, which writing pixels cannot seem to change
  const Canvas canvas = shared_canvas;
  const Rect in = warp.inside;
  const auto width = static_cast<unsigned>(in.x1 - in.x0);
  const auto height = static_cast<unsigned>(in.y1 - in.y0);
  for (int y = rect.y0; y < rect.y1; ++y) {
    const RowPositions at(warp, y);
    std::uint8_t* out = canvas.at(rect.x0, y);
    for (int x = rect.x0; x < rect.x1; ++x, out += canvas.pixel) {
      const int i = at.u(x) >> warp.bits;
      const int j = at.v(x) >> warp.bits;
      std::ptrdiff_t channel = warp.channel;
      const std::uint8_t* from = warp.source + j * warp.row + i * warp.pixel;
      if (static_cast<unsigned>(i - in.x0) >= width || static_cast<unsigned>(j - in.y0) >= height)
        from = tap(warp, i, j, channel);
      for (int c = 0; c < kChannels; ++c) out[c * canvas.channel] = from[c * channel];
    }
  }
}

void nearest(const WarpBlock& warp, const Rect& rect, const Canvas& canvas) {
  (canvas.channels == 1 ? nearest<1> : nearest<3>)(warp, rect, canvas);
}

}  // namespace
}  // namespace millrace::augment

#define MILLRACE_BODY "augment/kernels/nearest_body.h"
#include "augment/kernels/compile_per_level.h"

namespace millrace::augment {
namespace {

#if MILLRACE_X86

// Planes of at most 1 KiB (digits, CIFAR's channels) are copied first: to memory that also holds
// the fill (AVX2), or to registers (AVX-512).

constexpr int kSmall = 1024;

struct SmallPlanes {
  std::ptrdiff_t lowest;  ///< offset of the first byte used in each plane
  int bytes;
};

/// Returns false if the planes are too large, or if the output is interleaved.
bool as_small(const WarpBlock& warp, const Canvas& canvas, SmallPlanes& planes) {
  const Rect& r = warp.inside;
  constexpr int kFar = 32767;  // columns and rows fit 16 bits
  if (warp.bounds->size() > 1 || canvas.pixel != 1 || std::max({-r.x0, -r.y0, r.x1, r.y1}) > kFar)
    return false;
  const auto reach = [](std::ptrdiff_t step, int low, int high, std::ptrdiff_t& least) {
    least += step > 0 ? step * low : step * (high - 1);
    return std::abs(step) * (high - 1 - low);
  };
  planes.lowest = 0;
  const std::ptrdiff_t last =
      reach(warp.pixel, r.x0, r.x1, planes.lowest) + reach(warp.row, r.y0, r.y1, planes.lowest);
  planes.bytes = static_cast<int>(std::min<std::ptrdiff_t>(last, kSmall)) + 1;
  return last < kSmall;
}

MILLRACE_AVX2 inline __m256i all(std::ptrdiff_t value) {
  return _mm256_set1_epi16(static_cast<short>(value));
}

/// Computes out[k] = from[offsets[k]]. Gathers bytes in registers, because a processor stores one
/// byte per cycle.
MILLRACE_AVX2 void pick(const std::uint8_t* from, const std::uint16_t* offsets, int n,
                        std::uint8_t* out) {
  for (; n >= 16; n -= 16, offsets += 16, out += 16) {
    __m128i halves[2];
    for (int h = 0; h < 2; ++h) {
      const std::uint16_t* at = offsets + 8 * h;
      __m128i eight = _mm_cvtsi32_si128(from[at[0]]);
      eight = _mm_insert_epi8(eight, from[at[1]], 1);
      eight = _mm_insert_epi8(eight, from[at[2]], 2);
      eight = _mm_insert_epi8(eight, from[at[3]], 3);
      eight = _mm_insert_epi8(eight, from[at[4]], 4);
      eight = _mm_insert_epi8(eight, from[at[5]], 5);
      eight = _mm_insert_epi8(eight, from[at[6]], 6);
      halves[h] = _mm_insert_epi8(eight, from[at[7]], 7);
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_unpacklo_epi64(halves[0], halves[1]));
  }
  for (int k = 0; k < n; ++k) out[k] = from[offsets[k]];
}

/// Computes offsets first, for all channels, then pixels. Columns and rows fit 16 bits. The fill
/// lies behind the copy of a plane, so that outside pixels need no special case.
template <bool kClamp>
MILLRACE_AVX2 void small_nearest_avx2(const WarpBlock& shared, const SmallPlanes& planes,
                                      const Rect& rect, const Canvas& canvas) {
  const WarpBlock warp = shared;  // a copy, see Source
  const avx2::Source source(warp);
  std::uint8_t levels[3][kSmall + 1];
  for (int c = 0; c < canvas.channels; ++c) {
    std::memcpy(levels[c], warp.source + planes.lowest + c * warp.channel,
                static_cast<std::size_t>(planes.bytes));
    levels[c][kSmall] = (*warp.bounds)[0].fill[static_cast<std::size_t>(c)];
  }
  const Rect& in = warp.inside;
  const __m256i left = all(in.x0), top = all(in.y0);
  const __m256i right = all(in.x1 - 1 - in.x0), bottom = all(in.y1 - 1 - in.y0);
  const __m256i pixel = all(warp.pixel), row = all(warp.row);
  const __m256i first = all(in.x0 * warp.pixel + in.y0 * warp.row - planes.lowest);
  constexpr int kMax = 512;
  std::uint16_t offsets[kMax + 16];
  const int width = std::min(rect.x1 - rect.x0, kMax);
  // Several rows if they follow each other without a gap.
  const int height = width == canvas.row ? kMax / width : 1;
  for (int y0 = rect.y0; y0 < rect.y1; y0 += height) {
    for (int x0 = rect.x0; x0 < rect.x1; x0 += width) {
      const int n = std::min(width, rect.x1 - x0);
      std::uint16_t* line = offsets;
      for (int y = y0; y < std::min(y0 + height, rect.y1); ++y, line += n) {
        avx2::Positions at = source.at(x0, y);
        for (int x = 0; x < n; x += 16) {
          const avx2::Positions on = source.next(at, x0 + x + 8);
          __m256i i = _mm256_packs_epi32(_mm256_srai_epi32(at.u, warp.bits),
                                         _mm256_srai_epi32(on.u, warp.bits));
          __m256i j = _mm256_packs_epi32(_mm256_srai_epi32(at.v, warp.bits),
                                         _mm256_srai_epi32(on.v, warp.bits));
          at = source.next(on, x0 + x + 16);
          if constexpr (kClamp) {
            i = _mm256_max_epi16(i, left);
            j = _mm256_max_epi16(j, top);
          }
          i = _mm256_sub_epi16(i, left);
          j = _mm256_sub_epi16(j, top);
          const __m256i near_i = _mm256_min_epu16(i, right), near_j = _mm256_min_epu16(j, bottom);
          __m256i offset = _mm256_add_epi16(
              _mm256_add_epi16(_mm256_mullo_epi16(near_i, pixel), _mm256_mullo_epi16(near_j, row)),
              first);
          if constexpr (!kClamp)
            offset = _mm256_blendv_epi8(
                all(kSmall), offset,
                _mm256_and_si256(_mm256_cmpeq_epi16(i, near_i), _mm256_cmpeq_epi16(j, near_j)));
          // The next row overwrites the excess.
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(line + x),
                              _mm256_permute4x64_epi64(offset, 0xD8));
        }
      }
      for (int c = 0; c < canvas.channels; ++c)
        pick(levels[c], offsets, static_cast<int>(line - offsets), canvas.at(x0, y0, c));
    }
  }
}

void nearest_avx2(const WarpBlock& warp, const Rect& rect, const Canvas& canvas) {
  SmallPlanes planes;
  if (as_small(warp, canvas, planes)) {
    const auto kernel = warp.clamp ? small_nearest_avx2<true> : small_nearest_avx2<false>;
    return kernel(warp, planes, rect, canvas);
  }
  avx2::nearest(warp, rect, canvas);
}

/// Returns bytes 0 of all lanes of both vectors in the low half, and bytes 1 in the high half.
MILLRACE_AVX512 inline __m512i two_bytes(__m512i a, __m512i b) {
  static constexpr LaneOrder kOrder = [] {
    LaneOrder order{};
    for (int i = 0; i < 64; ++i) order.at[i] = static_cast<std::int8_t>(i % 32 * 4 + i / 32);
    return order;
  }();
  return _mm512_permutex2var_epi8(a, _mm512_load_si512(kOrder.at), b);
}

/// Processes 64 pixels at a time: kAcross pieces of 16 in each of 4 / kAcross rows.
template <int kAcross, bool kClamp>
MILLRACE_AVX512 void small_nearest_512(const WarpBlock& shared, const SmallPlanes& planes,
                                       const Rect& rect, const Canvas& canvas) {
  const WarpBlock warp = shared;  // a copy, see Source
  const avx512::Source source(warp);
  alignas(64) std::uint8_t levels[3][kSmall];
  for (int c = 0; c < canvas.channels; ++c) {
    const std::uint8_t* from = warp.source + planes.lowest + c * warp.channel;
    for (int b = 0; b < planes.bytes; b += 64)  // reads at most 63 bytes behind the last pixel
      _mm512_store_si512(levels[c] + b, _mm512_loadu_si512(from + b));
  }
  const int pairs = (planes.bytes + 127) / 128;
  constexpr int kDown = 4 / kAcross;
  const Fill fill = (*warp.bounds)[0].fill;
  const __m512i pixel = _mm512_set1_epi32(static_cast<int>(2 * warp.pixel));
  const __m512i row = _mm512_set1_epi32(static_cast<int>(2 * warp.row));
  const __m512i lowest = _mm512_set1_epi32(static_cast<int>(2 * planes.lowest));
  for (int y = rect.y0; y < rect.y1; y += kDown) {
    for (int x = rect.x0; x < rect.x1; x += 16 * kAcross) {
      __m512i offsets[4];  // doubled, so that byte 1 is the number of the 128-byte block
      __mmask64 seen = 0;
      for (int q = 0; q < 4; ++q) {
        const avx512::Positions at = source.at(x + q % kAcross * 16, y + q / kAcross);
        __m512i i = _mm512_srai_epi32(at.u, static_cast<unsigned>(warp.bits));
        __m512i j = _mm512_srai_epi32(at.v, static_cast<unsigned>(warp.bits));
        if constexpr (kClamp) {
          i = avx512::clamped(i, warp.inside.x0, warp.inside.x1);
          j = avx512::clamped(j, warp.inside.y0, warp.inside.y1);
        } else {
          seen |= static_cast<__mmask64>(avx512::inside(i, j, warp.inside)) << (16 * q);
        }
        offsets[q] = _mm512_sub_epi32(
            _mm512_add_epi32(_mm512_mullo_epi32(i, pixel), _mm512_mullo_epi32(j, row)), lowest);
      }
      if constexpr (kClamp) seen = ~__mmask64{0};
      const __m512i low = two_bytes(offsets[0], offsets[1]);
      const __m512i high = two_bytes(offsets[2], offsets[3]);
      // Shifts the doubling out; the bits that enter on top are ignored.
      const __m512i index = _mm512_srli_epi16(_mm512_shuffle_i64x2(low, high, 0x44), 1);
      const __m512i number = _mm512_shuffle_i64x2(low, high, 0xEE);
      for (int c = 0; c < canvas.channels; ++c) {
        __m512i found = _mm512_set1_epi8(static_cast<char>(fill[static_cast<std::size_t>(c)]));
        for (int k = 0; k < pairs; ++k) {
          const __mmask64 here =
              _mm512_mask_cmpeq_epi8_mask(seen, number, _mm512_set1_epi8(static_cast<char>(k)));
          const __m512i there =
              _mm512_permutex2var_epi8(_mm512_load_si512(levels[c] + 128 * k), index,
                                       _mm512_load_si512(levels[c] + 128 * k + 64));
          found = _mm512_mask_mov_epi8(found, here, there);
        }
        const int n = std::min(16 * kAcross, rect.x1 - x);
        const __mmask64 valid = n == 64 ? ~__mmask64{0} : (__mmask64{1} << n) - 1;
        for (int d = 0; d < kDown && y + d < rect.y1; ++d) {
          _mm512_mask_storeu_epi8(canvas.at(x, y + d, c), valid, found);
          found = kAcross == 1 ? _mm512_shuffle_i64x2(found, found, 0x39)
                               : _mm512_shuffle_i64x2(found, found, 0x4E);
        }
      }
    }
  }
}

template <int kAcross>
void small_nearest_512(const WarpBlock& warp, const SmallPlanes& planes, const Rect& rect,
                       const Canvas& canvas) {
  (warp.clamp ? small_nearest_512<kAcross, true> : small_nearest_512<kAcross, false>)(warp, planes,
                                                                                      rect, canvas);
}

MILLRACE_AVX512 void nearest_512(const WarpBlock& warp, const Rect& rect, const Canvas& canvas) {
  SmallPlanes planes;
  if (as_small(warp, canvas, planes)) {
    const int width = rect.x1 - rect.x0;
    const auto kernel = width <= 16   ? small_nearest_512<1>
                        : width <= 32 ? small_nearest_512<2>
                                      : small_nearest_512<4>;
    return kernel(warp, planes, rect, canvas);
  }
  avx512::nearest(warp, rect, canvas);
}

#endif

}  // namespace

void add_nearest_kernels([[maybe_unused]] base::Simd level, Kernels& table) {
  table.nearest = nearest;
#if MILLRACE_X86
  if (level == base::Simd::avx2) table.nearest = nearest_avx2;
  if (level == base::Simd::avx512) table.nearest = nearest_512;
#endif
}

}  // namespace millrace::augment
