// Filter::bilinear with one vector of pixels at a time; included by compile_per_level.h.

struct Channels {
  Vector c[3];
};

SIMD inline Vector ordered(Vector bytes, const LaneOrder& order) {
  return OP(shuffle_epi8)(bytes, load(order.at));
}

/// Return lanes 0, 2, ... twice, and lanes 1, 3, ... twice.
SIMD inline Vector even_twice(Vector v) {
  return OP(shuffle_epi32)(v, static_cast<_MM_PERM_ENUM>(0xA0));
}
SIMD inline Vector odd_twice(Vector v) {
  return OP(shuffle_epi32)(v, static_cast<_MM_PERM_ENUM>(0xF5));
}

/// Returns weighted sums along the row, from 64-bit pieces of even and of odd pixels.
SIMD inline Channels along_row(Vector even, Vector odd, const PairOrders& orders, Vector weights) {
  const Vector e = OP(madd_epi16)(ordered(even, orders.red_green), even_twice(weights));
  const Vector o = OP(madd_epi16)(ordered(odd, orders.red_green), odd_twice(weights));
  const Vector blue = WHOLE(or)(ordered(even, orders.blue_first), ordered(odd, orders.blue_second));
  return {in_turn(e, even_twice(o)), in_turn(odd_twice(e), o), OP(madd_epi16)(blue, weights)};
}

/// Returns one row's sums if all taps are inside; `offsets` belong to the tap that comes first in
/// memory.
template <Fetch kFetch>
SIMD inline Channels pairs_along_row(const std::uint8_t* from, const Offsets& offsets,
                                     std::ptrdiff_t channel, const PairOrders& orders,
                                     Vector weights) {
  if constexpr (kFetch == Fetch::rgb)
    return along_row(load_pieces(from, offsets.at), load_pieces(from, offsets.at + 1), orders,
                     weights);
  Channels sums{};
  for (int c = 0; c < (kFetch == Fetch::gray ? 1 : 3); ++c)
    sums.c[c] =
        OP(madd_epi16)(ordered(load_lanes(from + c * channel, offsets.at), orders.gray), weights);
  return sums;
}

/// Returns one row's sums, tap by tap: i and i + 1 of row j.
template <Fetch kFetch>
SIMD inline Channels taps_along_row(const WarpBlock& warp, Vector i, Vector j, Vector weights) {
  const Vector first = fetch<kFetch>(warp, i, j);
  const Vector second = fetch<kFetch>(warp, OP(add_epi32)(i, OP(set1_epi32)(1)), j);
  if constexpr (kFetch == Fetch::gray) {
    const Vector byte = OP(set1_epi32)(255);
    const Vector pairs =
        WHOLE(or)(WHOLE(and)(first, byte), OP(slli_epi32)(WHOLE(and)(second, byte), 16));
    return {{OP(madd_epi16)(pairs, weights)}};
  }
  return along_row(in_turn(first, even_twice(second)), in_turn(odd_twice(first), second), kApart,
                   weights);
}

/// Returns (top (2^11 - w) + bottom w) / 2^22, halves to even.
SIMD inline Vector across_rows(Vector top, Vector bottom, Vector weight) {
  const Vector rest = OP(sub_epi32)(OP(set1_epi32)(kOne), weight);
  const Vector sum = OP(add_epi32)(OP(mullo_epi32)(top, rest), OP(mullo_epi32)(bottom, weight));
  const Vector odd = WHOLE(and)(OP(srli_epi32)(sum, 22), OP(set1_epi32)(1));
  return OP(srli_epi32)(OP(add_epi32)(OP(add_epi32)(sum, OP(set1_epi32)((1 << 21) - 1)), odd), 22);
}

template <Fetch kFetch>
SIMD void bilinear(const WarpBlock& shared, const Rect& rect, const Canvas& shared_canvas) {
  const WarpBlock warp = shared;  // copies, see Source
  const Canvas canvas = shared_canvas;
  const Source source(warp);
  const int shift = warp.bits - kWeightBits;
  const Vector round = OP(set1_epi32)(1 << (shift - 1));
  const Vector fraction = OP(set1_epi32)(kOne - 1);
  const Rect& in = warp.inside;
  const bool pairs = side_by_side(warp, kFetch);
  const PairOrders& orders = warp.pixel < 0 ? kBackward : kForward;
  const Vector lower = OP(set1_epi32)(static_cast<int>(std::min<std::ptrdiff_t>(warp.pixel, 0)));
  const Bound outermost = (*warp.bounds)[0];
  const Rect touched{outermost.rect.x0 - 1, outermost.rect.y0 - 1, outermost.rect.x1,
                     outermost.rect.y1};
  const int n = std::min(kLanes, rect.x1 - rect.x0);
  const unsigned valid = kAll >> (kLanes - n);
  for (int y = rect.y0; y < rect.y1; ++y) {
    for (int begin = rect.x0; begin < rect.x1; begin += kLanes) {
      const int x = std::min(begin, rect.x1 - n);  // the last pixels may overlap earlier ones
      const Positions at = source.at(x, y);
      const Vector u = OP(srai_epi32)(OP(add_epi32)(at.u, round), shift);
      const Vector v = OP(srai_epi32)(OP(add_epi32)(at.v, round), shift);
      const Vector i = OP(srai_epi32)(u, kWeightBits);
      const Vector j = OP(srai_epi32)(v, kWeightBits);
      const Vector wu = WHOLE(and)(u, fraction);
      const Vector wv = WHOLE(and)(v, fraction);
      const Vector weights =
          OP(add_epi32)(OP(sub_epi32)(OP(slli_epi32)(wu, 16), wu), OP(set1_epi32)(kOne));
      Channels top, bottom;
      if (pairs && bits(inside(i, j, {in.x0, in.y0, in.x1 - 1, in.y1 - 1})) == kAll) {
        const Offsets places(OP(add_epi32)(offsets(warp, i, j), lower));
        top = pairs_along_row<kFetch>(warp.source, places, warp.channel, orders, weights);
        bottom =
            pairs_along_row<kFetch>(warp.source + warp.row, places, warp.channel, orders, weights);
      } else if (!warp.clamp && (bits(inside(i, j, touched)) & valid) == 0) {
        put(canvas, x, y, n, OP(set1_epi32)(fill_lane(outermost.fill)));
        continue;
      } else {
        top = taps_along_row<kFetch>(warp, i, j, weights);
        bottom = taps_along_row<kFetch>(warp, i, OP(add_epi32)(j, OP(set1_epi32)(1)), weights);
      }
      Vector pixels = across_rows(top.c[0], bottom.c[0], wv);
      if constexpr (kFetch != Fetch::gray) {
        const Vector green = across_rows(top.c[1], bottom.c[1], wv);
        const Vector blue = across_rows(top.c[2], bottom.c[2], wv);
        pixels = WHOLE(or)(pixels, OP(slli_epi32)(green, 8));
        pixels = WHOLE(or)(pixels, OP(slli_epi32)(blue, 16));
      }
      put(canvas, x, y, n, pixels);
    }
  }
}

inline void bilinear(const WarpBlock& warp, const Rect& rect, const Canvas& canvas) {
  switch (fetch_of(warp, canvas)) {
    case Fetch::gray:
      return bilinear<Fetch::gray>(warp, rect, canvas);
    case Fetch::rgb:
      return bilinear<Fetch::rgb>(warp, rect, canvas);
    case Fetch::planes:
      return bilinear<Fetch::planes>(warp, rect, canvas);
  }
}
