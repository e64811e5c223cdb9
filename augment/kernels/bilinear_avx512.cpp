// Filter::bilinear with AVX-512: 16 pixels at a time.
#include "augment/kernels/bilinear.h"

#if MILLRACE_X86

namespace millrace {
namespace {

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

/// Eight bytes from each of eight places, those of every second pixel.
MILLRACE_AVX512 inline __m512i load_pieces(const std::uint8_t* from, const std::int32_t* offsets) {
  long long pieces[8];
  for (int k = 0; k < 8; ++k) std::memcpy(&pieces[k], from + offsets[2 * k], 8);
  return _mm512_setr_epi64(pieces[0], pieces[1], pieces[2], pieces[3], pieces[4], pieces[5],
                           pieces[6], pieces[7]);
}

/// One row's sums where all taps are inside: `offsets` of the tap that comes first in memory.
template <Fetch kFetch>
MILLRACE_AVX512 inline Channels512 pairs_along_row(const std::uint8_t* from,
                                                   const Offsets512& offsets,
                                                   std::ptrdiff_t channel, const PairOrders& orders,
                                                   __m512i weights) {
  if constexpr (kFetch == Fetch::rgb)
    return along_row(load_pieces(from, offsets.at), load_pieces(from, offsets.at + 1), orders,
                     weights);
  Channels512 sums{};
  for (int c = 0; c < (kFetch == Fetch::gray ? 1 : 3); ++c)
    sums.c[c] =
        _mm512_madd_epi16(ordered(load_lanes(from + c * channel, offsets), orders.gray), weights);
  return sums;
}

/// One row's sums, tap by tap, i and i + 1 of row j.
template <Fetch kFetch>
MILLRACE_AVX512 inline Channels512 taps_along_row(const WarpBlock& warp, __m512i i, __m512i j,
                                                  __m512i weights) {
  const Rect& in = warp.inside;
  __m512i taps[2];
  for (int k = 0; k < 2; ++k) {
    const __m512i column = _mm512_add_epi32(i, _mm512_set1_epi32(k));
    const Offsets512 offsets(
        offsets512(warp, clamp512(column, in.x0, in.x1), clamp512(j, in.y0, in.y1)));
    taps[k] = fetch512<kFetch>(warp, offsets);
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
MILLRACE_AVX512 void bilinear_512(const WarpBlock& shared, const Rect& rect,
                                  const Canvas& shared_canvas) {
  const WarpBlock warp = shared;  // copies, see Source512
  const Canvas canvas = shared_canvas;
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
        const Offsets512 offsets(_mm512_mask_mov_epi32(
            _mm512_broadcastd_epi32(_mm512_castsi512_si128(places)), valid, places));
        top = pairs_along_row<kFetch>(warp.source, offsets, warp.channel, orders, weights);
        bottom =
            pairs_along_row<kFetch>(warp.source + warp.row, offsets, warp.channel, orders, weights);
      } else if (!warp.clamp && (inside512(i, j, touched) & valid) == 0) {
        put512(canvas, x, y, n, _mm512_set1_epi32(fill_lane(outermost.fill)));
        continue;
      } else {
        const __m512i below = _mm512_add_epi32(j, _mm512_set1_epi32(1));
        top = taps_along_row<kFetch>(warp, i, j, weights);
        bottom = taps_along_row<kFetch>(warp, i, below, weights);
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

}  // namespace

void add_bilinear_avx512(Kernels& table) { table.bilinear = bilinear_512; }

}  // namespace millrace

#endif
