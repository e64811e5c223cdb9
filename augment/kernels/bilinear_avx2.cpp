// Filter::bilinear with AVX2: 8 pixels at a time, as bilinear_avx512.cpp does 16.
#include "augment/kernels/bilinear.h"

#if MILLRACE_X86

namespace millrace {
namespace {

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

/// Eight bytes from each of four places, those of every second pixel.
MILLRACE_AVX2 inline __m256i load_pieces(const std::uint8_t* from, const std::int32_t* offsets) {
  long long pieces[4];
  for (int k = 0; k < 4; ++k) std::memcpy(&pieces[k], from + offsets[2 * k], 8);
  return _mm256_setr_epi64x(pieces[0], pieces[1], pieces[2], pieces[3]);
}

/// One row's sums where all taps are inside: `offsets` of the tap that comes first in memory.
template <Fetch kFetch>
MILLRACE_AVX2 inline Channels256 pairs_along_row(const std::uint8_t* from,
                                                 const Offsets256& offsets, std::ptrdiff_t channel,
                                                 const PairOrders& orders, __m256i weights) {
  if constexpr (kFetch == Fetch::rgb)
    return along_row(load_pieces(from, offsets.at), load_pieces(from, offsets.at + 1), orders,
                     weights);
  Channels256 sums{};
  for (int c = 0; c < (kFetch == Fetch::gray ? 1 : 3); ++c)
    sums.c[c] =
        _mm256_madd_epi16(ordered(load_lanes(from + c * channel, offsets), orders.gray), weights);
  return sums;
}

/// One row's sums, tap by tap, i and i + 1 of row j.
template <Fetch kFetch>
MILLRACE_AVX2 inline Channels256 taps_along_row(const WarpBlock& warp, __m256i i, __m256i j,
                                                __m256i weights) {
  const Rect& in = warp.inside;
  __m256i taps[2];
  for (int k = 0; k < 2; ++k) {
    const __m256i column = _mm256_add_epi32(i, _mm256_set1_epi32(k));
    const Offsets256 offsets(
        offsets256(warp, clamp256(column, in.x0, in.x1), clamp256(j, in.y0, in.y1)));
    taps[k] = fetch256<kFetch>(warp, offsets);
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
MILLRACE_AVX2 void bilinear_avx2(const WarpBlock& shared, const Rect& rect,
                                 const Canvas& shared_canvas) {
  const WarpBlock warp = shared;  // copies, see Source512
  const Canvas canvas = shared_canvas;
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
        const Offsets256 offsets(_mm256_add_epi32(offsets256(warp, i, j), lower));
        top = pairs_along_row<kFetch>(warp.source, offsets, warp.channel, orders, weights);
        bottom =
            pairs_along_row<kFetch>(warp.source + warp.row, offsets, warp.channel, orders, weights);
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

}  // namespace

void add_bilinear_avx2(Kernels& table) { table.bilinear = bilinear_avx2; }

}  // namespace millrace

#endif
