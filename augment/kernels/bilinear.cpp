// Filter::bilinear: two taps an axis with weights of 11 bits, products of two make 22; the sum is
// exact in 32 bits and rounded once, halves to even.
#include <algorithm>
#include <cstring>

#include "augment/kernels/pixels_x86.h"
#include "augment/kernels/warp_positions.h"

namespace millrace {
namespace {

constexpr int kWeightBits = 11;
constexpr std::uint32_t kOne = 1u << kWeightBits;

/// A sum of levels weighted to 2^22, rounded half to even.
std::uint8_t rounded(std::uint32_t sum) {
  return static_cast<std::uint8_t>((sum + (1u << 21) - 1 + (sum >> 22 & 1)) >> 22);
}

template <int kChannels>
void bilinear(const WarpBlock& warp, const Rect& rect, const Canvas& canvas) {
  // Weights are rounded to 11 bits before the position is split, so that 1 carries over.
  const int shift = warp.bits - kWeightBits;
  const std::int32_t round = 1 << (shift - 1);
  const Rect& in = warp.inside;
  for (int y = rect.y0; y < rect.y1; ++y) {
    const RowPositions at(warp, y);
    std::uint8_t* out = canvas.at(rect.x0, y);
    for (int x = rect.x0; x < rect.x1; ++x, out += canvas.pixel) {
      const std::int32_t u = (at.u(x) + round) >> shift;
      const std::int32_t v = (at.v(x) + round) >> shift;
      const std::uint32_t wu = static_cast<std::uint32_t>(u) & (kOne - 1);
      const std::uint32_t wv = static_cast<std::uint32_t>(v) & (kOne - 1);
      const int i = u >> kWeightBits;
      const int j = v >> kWeightBits;
      const auto blend = [&](const std::uint8_t* const* taps, const std::ptrdiff_t* channel) {
        for (int c = 0; c < kChannels; ++c) {
          const auto level = [&](std::size_t k) -> std::uint32_t {
            return taps[k][c * channel[k]];
          };
          const std::uint32_t top = level(0) * (kOne - wu) + level(1) * wu;
          const std::uint32_t bottom = level(2) * (kOne - wu) + level(3) * wu;
          out[c * canvas.channel] = rounded(top * (kOne - wv) + bottom * wv);
        }
      };
      if (i >= in.x0 && i + 1 < in.x1 && j >= in.y0 && j + 1 < in.y1) {
        const std::uint8_t* from = warp.source + j * warp.row + i * warp.pixel;
        const std::uint8_t* taps[4] = {from, from + warp.pixel, from + warp.row,
                                       from + warp.row + warp.pixel};
        const std::ptrdiff_t channel[4] = {warp.channel, warp.channel, warp.channel, warp.channel};
        blend(taps, channel);
      } else {
        std::ptrdiff_t channel[4];
        const std::uint8_t* taps[4] = {tap(warp, i, j, channel[0]), tap(warp, i + 1, j, channel[1]),
                                       tap(warp, i, j + 1, channel[2]),
                                       tap(warp, i + 1, j + 1, channel[3])};
        blend(taps, channel);
      }
    }
  }
}

void bilinear(const WarpBlock& warp, const Rect& rect, const Canvas& canvas) {
  (canvas.channels == 1 ? bilinear<1> : bilinear<3>)(warp, rect, canvas);
}

#if MILLRACE_X86

// Two taps of a row are read as one piece of memory where all four of every lane are inside, and
// one by one, each with its bounds, where not. A pair of levels and a pair of weights make one
// multiply-and-add of 16-bit numbers; the rest is 32 bits wide.

/// Byte orders that make 16-bit pairs (tap i, tap i + 1) of what was read.
struct PairOrders {
  LaneOrder gray;        ///< of 32 bits: level, level
  LaneOrder red_green;   ///< of 64 bits: two pixels, `apart` bytes from each other
  LaneOrder blue_first;  ///< the blue pair in the lower half of 64 bits
  LaneOrder blue_second;
};

constexpr PairOrders pair_orders(int first, int second) {
  const auto pick = [&](int i, int channel, bool lower) {
    // Bytes 0..3 of a half are level, 0, level, 0.
    if (i % 2 == 1 || (i / 4 % 2 == 0) != lower) return -1;
    return i / 8 * 8 + (i % 4 == 0 ? first : second) + channel;
  };
  PairOrders orders{};
  orders.gray = lane_order([&](int i) {
    return i % 2 == 1 ? -1 : i / 4 * 4 + (i % 4 == 0 ? std::min(first, 1) : std::min(second, 1));
  });
  orders.red_green =
      lane_order([&](int i) { return i % 8 < 4 ? pick(i, 0, true) : pick(i, 1, false); });
  orders.blue_first = lane_order([&](int i) { return pick(i, 2, true); });
  orders.blue_second = lane_order([&](int i) { return pick(i, 2, false); });
  return orders;
}

constexpr PairOrders kForward = pair_orders(0, 3);   ///< pixels 3 bytes apart
constexpr PairOrders kBackward = pair_orders(3, 0);  ///< mirrored in memory
constexpr PairOrders kApart = pair_orders(0, 4);     ///< pixels of 4 bytes

// ---- AVX-512 ------------------------------------------------------------------------------------

struct Channels512 {
  __m512i c[3];
};

MILLRACE_AVX512 inline __m512i ordered(__m512i bytes, const LaneOrder& order) {
  return _mm512_shuffle_epi8(bytes, _mm512_load_si512(order.at));
}

/// Weighted sums along the row, of 64-bit pieces of even and of odd pixels.
MILLRACE_AVX512 inline Channels512 along_row(__m512i even, __m512i odd, const PairOrders& orders,
                                             __m512i weights) {
  const __m512i e =
      _mm512_madd_epi16(ordered(even, orders.red_green),
                        _mm512_shuffle_epi32(weights, static_cast<_MM_PERM_ENUM>(0xA0)));
  const __m512i o =
      _mm512_madd_epi16(ordered(odd, orders.red_green),
                        _mm512_shuffle_epi32(weights, static_cast<_MM_PERM_ENUM>(0xF5)));
  const __m512i blue =
      _mm512_or_si512(ordered(even, orders.blue_first), ordered(odd, orders.blue_second));
  return {_mm512_mask_shuffle_epi32(e, 0xAAAA, o, static_cast<_MM_PERM_ENUM>(0xA0)),
          _mm512_mask_shuffle_epi32(o, 0x5555, e, static_cast<_MM_PERM_ENUM>(0xF5)),
          _mm512_madd_epi16(blue, weights)};
}

/// Eight bytes from each of eight places. Loads take half of a gather's time here.
MILLRACE_AVX512 inline __m512i load_pieces512(const std::uint8_t* from,
                                              const std::int32_t* offsets) {
  long long pieces[8];
  for (int k = 0; k < 8; ++k) std::memcpy(&pieces[k], from + offsets[2 * k], 8);
  return _mm512_setr_epi64(pieces[0], pieces[1], pieces[2], pieces[3], pieces[4], pieces[5],
                           pieces[6], pieces[7]);
}

/// One row's sums where all taps are inside: `offsets` of the tap that comes first in memory.
template <Fetch kFetch>
MILLRACE_AVX512 inline Channels512 pairs_along_row(const std::uint8_t* from, __m512i offsets,
                                                   const std::int32_t* stored_offsets,
                                                   std::ptrdiff_t channel, const PairOrders& orders,
                                                   __m512i weights) {
  if constexpr (kFetch == Fetch::rgb)
    return along_row(load_pieces512(from, stored_offsets), load_pieces512(from, stored_offsets + 1),
                     orders, weights);
  Channels512 sums{};
  for (int c = 0; c < (kFetch == Fetch::gray ? 1 : 3); ++c)
    sums.c[c] = _mm512_madd_epi16(
        ordered(gather512(from + c * channel, 0xFFFF, offsets), orders.gray), weights);
  return sums;
}

/// One row's sums, tap by tap, i and i + 1 of row j.
template <Fetch kFetch>
MILLRACE_AVX512 inline Channels512 taps_along_row(const WarpBlock& warp, __mmask16 valid, __m512i i,
                                                  __m512i j, __m512i weights) {
  const Rect& in = warp.inside;
  __m512i taps[2];
  for (int k = 0; k < 2; ++k) {
    const __m512i column = _mm512_add_epi32(i, _mm512_set1_epi32(k));
    const __m512i offsets =
        offsets512(warp, clamp512(column, in.x0, in.x1), clamp512(j, in.y0, in.y1));
    taps[k] = fetch512<kFetch>(warp, valid, offsets);
    if (warp.clamp) continue;
    for (int b = warp.bounds->size() - 1; b >= 0; --b) {  // the first bound decides
      const Bound& bound = (*warp.bounds)[b];
      taps[k] =
          _mm512_mask_set1_epi32(taps[k], static_cast<__mmask16>(~inside512(column, j, bound.rect)),
                                 fill_lane(bound.fill));
    }
  }
  if constexpr (kFetch == Fetch::gray) {
    const __m512i byte = _mm512_set1_epi32(255);
    const __m512i pairs = _mm512_or_si512(_mm512_and_si512(taps[0], byte),
                                          _mm512_slli_epi32(_mm512_and_si512(taps[1], byte), 16));
    return {{_mm512_madd_epi16(pairs, weights)}};
  }
  return along_row(
      _mm512_mask_shuffle_epi32(taps[0], 0xAAAA, taps[1], static_cast<_MM_PERM_ENUM>(0xA0)),
      _mm512_mask_shuffle_epi32(taps[1], 0x5555, taps[0], static_cast<_MM_PERM_ENUM>(0xF5)), kApart,
      weights);
}

/// (top (2^11 - w) + bottom w) / 2^22, halves to even.
MILLRACE_AVX512 inline __m512i across_rows(__m512i top, __m512i bottom, __m512i weight) {
  const __m512i rest = _mm512_sub_epi32(_mm512_set1_epi32(kOne), weight);
  const __m512i sum =
      _mm512_add_epi32(_mm512_mullo_epi32(top, rest), _mm512_mullo_epi32(bottom, weight));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(sum, 22), _mm512_set1_epi32(1));
  return _mm512_srli_epi32(
      _mm512_add_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32((1 << 21) - 1)), odd), 22);
}

template <Fetch kFetch>
MILLRACE_AVX512 void bilinear_512(const WarpBlock& shared, const Rect& rect, const Canvas& canvas) {
  const WarpBlock warp = shared;  // by value, see Source512
  const Source512 source(warp);
  const auto shift = static_cast<unsigned>(warp.bits - kWeightBits);
  const __m512i round = _mm512_set1_epi32(1 << (shift - 1));
  const __m512i fraction = _mm512_set1_epi32(kOne - 1);
  const Rect& in = warp.inside;
  const bool pairs = side_by_side(warp, kFetch);
  const PairOrders& orders = warp.pixel < 0 ? kBackward : kForward;
  const __m512i lower =
      _mm512_set1_epi32(static_cast<int>(std::min<std::ptrdiff_t>(warp.pixel, 0)));
  const Bound outermost = (*warp.bounds)[0];
  const Rect touched{outermost.rect.x0 - 1, outermost.rect.y0 - 1, outermost.rect.x1,
                     outermost.rect.y1};
  for (int y = rect.y0; y < rect.y1; ++y) {
    for (int x = rect.x0; x < rect.x1; x += 16) {
      const int n = std::min(16, rect.x1 - x);
      const auto valid = static_cast<__mmask16>((1u << n) - 1);
      const Positions512 at = source.at(x, y);
      const __m512i u = _mm512_srai_epi32(_mm512_add_epi32(at.u, round), shift);
      const __m512i v = _mm512_srai_epi32(_mm512_add_epi32(at.v, round), shift);
      const __m512i i = _mm512_srai_epi32(u, kWeightBits);
      const __m512i j = _mm512_srai_epi32(v, kWeightBits);
      const __m512i wu = _mm512_and_si512(u, fraction);
      const __m512i wv = _mm512_and_si512(v, fraction);
      const __m512i weights = _mm512_add_epi32(_mm512_sub_epi32(_mm512_slli_epi32(wu, 16), wu),
                                               _mm512_set1_epi32(kOne));
      const __mmask16 within = inside512(i, j, {in.x0, in.y0, in.x1 - 1, in.y1 - 1});
      Channels512 top, bottom;
      if (pairs && (within & valid) == valid) {
        // Lanes behind the row's end read what the first one reads.
        const __m512i places = _mm512_add_epi32(offsets512(warp, i, j), lower);
        const __m512i offsets = _mm512_mask_mov_epi32(
            _mm512_broadcastd_epi32(_mm512_castsi512_si128(places)), valid, places);
        alignas(64) std::int32_t stored[16];
        if constexpr (kFetch == Fetch::rgb) _mm512_store_si512(stored, offsets);
        top = pairs_along_row<kFetch>(warp.source, offsets, stored, warp.channel, orders, weights);
        bottom = pairs_along_row<kFetch>(warp.source + warp.row, offsets, stored, warp.channel,
                                         orders, weights);
      } else if (!warp.clamp && (inside512(i, j, touched) & valid) == 0) {
        put512(canvas, x, y, n, _mm512_set1_epi32(fill_lane(outermost.fill)));
        continue;
      } else {
        const __m512i below = _mm512_add_epi32(j, _mm512_set1_epi32(1));
        top = taps_along_row<kFetch>(warp, valid, i, j, weights);
        bottom = taps_along_row<kFetch>(warp, valid, i, below, weights);
      }
      __m512i pixels = across_rows(top.c[0], bottom.c[0], wv);
      if constexpr (kFetch != Fetch::gray) {
        const __m512i green = across_rows(top.c[1], bottom.c[1], wv);
        const __m512i blue = across_rows(top.c[2], bottom.c[2], wv);
        pixels = _mm512_or_si512(pixels, _mm512_slli_epi32(green, 8));
        pixels = _mm512_or_si512(pixels, _mm512_slli_epi32(blue, 16));
      }
      put512(canvas, x, y, n, pixels);
    }
  }
}

void bilinear_512(const WarpBlock& warp, const Rect& rect, const Canvas& canvas) {
  switch (fetch_of(warp, canvas)) {
    case Fetch::gray:
      return bilinear_512<Fetch::gray>(warp, rect, canvas);
    case Fetch::rgb:
      return bilinear_512<Fetch::rgb>(warp, rect, canvas);
    case Fetch::planes:
      return bilinear_512<Fetch::planes>(warp, rect, canvas);
  }
}

// ---- AVX2: the same with 8 pixels
// -----------------------------------------------------------------

struct Channels256 {
  __m256i c[3];
};

MILLRACE_AVX2 inline __m256i ordered(__m256i bytes, const LaneOrder& order) {
  return _mm256_shuffle_epi8(bytes, load256(order.at));
}

MILLRACE_AVX2 inline Channels256 along_row(__m256i even, __m256i odd, const PairOrders& orders,
                                           __m256i weights) {
  const __m256i e =
      _mm256_madd_epi16(ordered(even, orders.red_green), _mm256_shuffle_epi32(weights, 0xA0));
  const __m256i o =
      _mm256_madd_epi16(ordered(odd, orders.red_green), _mm256_shuffle_epi32(weights, 0xF5));
  const __m256i blue =
      _mm256_or_si256(ordered(even, orders.blue_first), ordered(odd, orders.blue_second));
  return {_mm256_blend_epi32(e, _mm256_shuffle_epi32(o, 0xA0), 0xAA),
          _mm256_blend_epi32(o, _mm256_shuffle_epi32(e, 0xF5), 0x55),
          _mm256_madd_epi16(blue, weights)};
}

/// Eight bytes from each of four places: loads are as fast as a gather, or faster.
MILLRACE_AVX2 inline __m256i load_pieces(const std::uint8_t* from, const std::int32_t* offsets) {
  long long pieces[4];
  for (int k = 0; k < 4; ++k) std::memcpy(&pieces[k], from + offsets[2 * k], 8);
  return _mm256_setr_epi64x(pieces[0], pieces[1], pieces[2], pieces[3]);
}

template <Fetch kFetch>
MILLRACE_AVX2 inline Channels256 pairs_along_row(const std::uint8_t* from, __m256i offsets,
                                                 const std::int32_t* stored_offsets,
                                                 std::ptrdiff_t channel, const PairOrders& orders,
                                                 __m256i weights) {
  if constexpr (kFetch == Fetch::rgb)
    return along_row(load_pieces(from, stored_offsets), load_pieces(from, stored_offsets + 1),
                     orders, weights);
  Channels256 sums{};
  for (int c = 0; c < (kFetch == Fetch::gray ? 1 : 3); ++c)
    sums.c[c] = _mm256_madd_epi16(
        ordered(gather256(from + c * channel, _mm256_set1_epi32(-1), offsets), orders.gray),
        weights);
  return sums;
}

template <Fetch kFetch>
MILLRACE_AVX2 inline Channels256 taps_along_row(const WarpBlock& warp, __m256i i, __m256i j,
                                                __m256i weights) {
  const Rect& in = warp.inside;
  const __m256i all = _mm256_set1_epi32(-1);
  __m256i taps[2];
  for (int k = 0; k < 2; ++k) {
    const __m256i column = _mm256_add_epi32(i, _mm256_set1_epi32(k));
    const __m256i offsets =
        offsets256(warp, clamp256(column, in.x0, in.x1), clamp256(j, in.y0, in.y1));
    taps[k] = fetch256<kFetch>(warp, all, offsets);
    if (warp.clamp) continue;
    for (int b = warp.bounds->size() - 1; b >= 0; --b) {  // the first bound decides
      const Bound& bound = (*warp.bounds)[b];
      taps[k] = _mm256_blendv_epi8(_mm256_set1_epi32(fill_lane(bound.fill)), taps[k],
                                   inside256(column, j, bound.rect));
    }
  }
  if constexpr (kFetch == Fetch::gray) {
    const __m256i byte = _mm256_set1_epi32(255);
    const __m256i pairs = _mm256_or_si256(_mm256_and_si256(taps[0], byte),
                                          _mm256_slli_epi32(_mm256_and_si256(taps[1], byte), 16));
    return {{_mm256_madd_epi16(pairs, weights)}};
  }
  return along_row(_mm256_blend_epi32(taps[0], _mm256_shuffle_epi32(taps[1], 0xA0), 0xAA),
                   _mm256_blend_epi32(taps[1], _mm256_shuffle_epi32(taps[0], 0xF5), 0x55), kApart,
                   weights);
}

MILLRACE_AVX2 inline __m256i across_rows(__m256i top, __m256i bottom, __m256i weight) {
  const __m256i rest = _mm256_sub_epi32(_mm256_set1_epi32(kOne), weight);
  const __m256i sum =
      _mm256_add_epi32(_mm256_mullo_epi32(top, rest), _mm256_mullo_epi32(bottom, weight));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(sum, 22), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32((1 << 21) - 1)), odd), 22);
}

template <Fetch kFetch>
MILLRACE_AVX2 void bilinear_avx2(const WarpBlock& shared, const Rect& rect, const Canvas& canvas) {
  const WarpBlock warp = shared;  // by value, see Source512
  const Source256 source(warp);
  const int shift = warp.bits - kWeightBits;
  const __m256i round = _mm256_set1_epi32(1 << (shift - 1));
  const __m256i fraction = _mm256_set1_epi32(kOne - 1);
  const Rect& in = warp.inside;
  const bool pairs = side_by_side(warp, kFetch);
  const PairOrders& orders = warp.pixel < 0 ? kBackward : kForward;
  const __m256i lower =
      _mm256_set1_epi32(static_cast<int>(std::min<std::ptrdiff_t>(warp.pixel, 0)));
  const Bound outermost = (*warp.bounds)[0];
  const Rect touched{outermost.rect.x0 - 1, outermost.rect.y0 - 1, outermost.rect.x1,
                     outermost.rect.y1};
  for (int y = rect.y0; y < rect.y1; ++y) {
    for (int x = rect.x0; x < rect.x1; x += 8) {
      const int n = std::min(8, rect.x1 - x);
      const int valid = (1 << n) - 1;
      const Positions256 at = source.at(x, y);
      const __m256i u = _mm256_srai_epi32(_mm256_add_epi32(at.u, round), shift);
      const __m256i v = _mm256_srai_epi32(_mm256_add_epi32(at.v, round), shift);
      const __m256i i = _mm256_srai_epi32(u, kWeightBits);
      const __m256i j = _mm256_srai_epi32(v, kWeightBits);
      const __m256i wu = _mm256_and_si256(u, fraction);
      const __m256i wv = _mm256_and_si256(v, fraction);
      const __m256i weights = _mm256_add_epi32(_mm256_sub_epi32(_mm256_slli_epi32(wu, 16), wu),
                                               _mm256_set1_epi32(kOne));
      const int within = _mm256_movemask_ps(
          _mm256_castsi256_ps(inside256(i, j, {in.x0, in.y0, in.x1 - 1, in.y1 - 1})));
      Channels256 top, bottom;
      if (pairs && within == 0xFF) {
        const __m256i offsets = _mm256_add_epi32(offsets256(warp, i, j), lower);
        alignas(32) std::int32_t stored[8];
        if constexpr (kFetch == Fetch::rgb)
          _mm256_store_si256(reinterpret_cast<__m256i*>(stored), offsets);
        top = pairs_along_row<kFetch>(warp.source, offsets, stored, warp.channel, orders, weights);
        bottom = pairs_along_row<kFetch>(warp.source + warp.row, offsets, stored, warp.channel,
                                         orders, weights);
      } else if (!warp.clamp &&
                 (_mm256_movemask_ps(_mm256_castsi256_ps(inside256(i, j, touched))) & valid) == 0) {
        put256(canvas, x, y, n, _mm256_set1_epi32(fill_lane(outermost.fill)));
        continue;
      } else {
        const __m256i below = _mm256_add_epi32(j, _mm256_set1_epi32(1));
        top = taps_along_row<kFetch>(warp, i, j, weights);
        bottom = taps_along_row<kFetch>(warp, i, below, weights);
      }
      __m256i pixels = across_rows(top.c[0], bottom.c[0], wv);
      if constexpr (kFetch != Fetch::gray) {
        const __m256i green = across_rows(top.c[1], bottom.c[1], wv);
        const __m256i blue = across_rows(top.c[2], bottom.c[2], wv);
        pixels = _mm256_or_si256(pixels, _mm256_slli_epi32(green, 8));
        pixels = _mm256_or_si256(pixels, _mm256_slli_epi32(blue, 16));
      }
      put256(canvas, x, y, n, pixels);
    }
  }
}

void bilinear_avx2(const WarpBlock& warp, const Rect& rect, const Canvas& canvas) {
  switch (fetch_of(warp, canvas)) {
    case Fetch::gray:
      return bilinear_avx2<Fetch::gray>(warp, rect, canvas);
    case Fetch::rgb:
      return bilinear_avx2<Fetch::rgb>(warp, rect, canvas);
    case Fetch::planes:
      return bilinear_avx2<Fetch::planes>(warp, rect, canvas);
  }
}

#endif

}  // namespace

void add_bilinear_kernels(Simd level, Kernels& table) {
  table.bilinear = bilinear;
#if MILLRACE_X86
  if (level == Simd::avx2) table.bilinear = bilinear_avx2;
  if (level == Simd::avx512) table.bilinear = bilinear_512;
#endif
}

}  // namespace millrace
