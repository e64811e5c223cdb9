// Positions of the pixels of a row, and loads of the pixels at them; included by
// compile_per_level.h.

/// Positions of kLanes pixels of a row.
struct Positions {
  Vector u, v;
};

/// Computes or loads positions. Holds copies, so that the compiler need not assume that writing
/// pixels changes them.
class Source {
 public:
  SIMD explicit Source(const WarpBlock& warp)
      : stored_u_(warp.u),
        stored_v_(warp.v),
        u_0_(warp.u_0),
        u_x_(warp.u_x),
        u_y_(warp.u_y),
        v_0_(warp.v_0),
        v_x_(warp.v_x),
        v_y_(warp.v_y),
        along_u_(OP(mullo_epi32)(count(), OP(set1_epi32)(static_cast<int>(u_x_)))),
        along_v_(OP(mullo_epi32)(count(), OP(set1_epi32)(static_cast<int>(v_x_)))) {}

  /// Returns the positions of the kLanes pixels from (x, y) on.
  SIMD Positions at(int x, int y) const {
    if (stored_u_ != nullptr) return {load(stored_u_ + x), load(stored_v_ + x)};
    const auto i = static_cast<std::uint32_t>(x), j = static_cast<std::uint32_t>(y);
    const auto u = static_cast<int>(u_0_ + u_x_ * i + u_y_ * j);
    const auto v = static_cast<int>(v_0_ + v_x_ * i + v_y_ * j);
    return {OP(add_epi32)(OP(set1_epi32)(u), along_u_), OP(add_epi32)(OP(set1_epi32)(v), along_v_)};
  }

  /// Returns the positions from column x on, kLanes pixels to the right of `before`.
  SIMD Positions next(const Positions& before, int x) const {
    if (stored_u_ != nullptr) return {load(stored_u_ + x), load(stored_v_ + x)};
    return {OP(add_epi32)(before.u, OP(set1_epi32)(static_cast<int>(kLanes * u_x_))),
            OP(add_epi32)(before.v, OP(set1_epi32)(static_cast<int>(kLanes * v_x_)))};
  }

 private:
  const std::int32_t* stored_u_;
  const std::int32_t* stored_v_;
  std::uint32_t u_0_, u_x_, u_y_, v_0_, v_x_, v_y_;
  Vector along_u_, along_v_;
};

SIMD inline Mask inside(Vector i, Vector j, const Rect& r) {
  return both(between(i, r.x0, r.x1), between(j, r.y0, r.y1));
}

SIMD inline Vector clamped(Vector value, int low, int high) {
  return OP(max_epi32)(OP(min_epi32)(value, OP(set1_epi32)(high - 1)), OP(set1_epi32)(low));
}

SIMD inline Vector offsets(const WarpBlock& warp, Vector i, Vector j) {
  return OP(add_epi32)(OP(mullo_epi32)(i, OP(set1_epi32)(static_cast<int>(warp.pixel))),
                       OP(mullo_epi32)(j, OP(set1_epi32)(static_cast<int>(warp.row))));
}

/// Byte offsets, stored so that each lane can be loaded separately.
struct Offsets {
  alignas(64) std::int32_t at[kLanes];

  SIMD explicit Offsets(Vector offsets) { std::memcpy(at, &offsets, sizeof offsets); }
};

/// Returns the pixels at (i, j). Clamps positions outside `inside` before it loads them, and then
/// replaces what lies outside a bound by its fill.
template <Fetch kFetch>
SIMD inline Vector fetch(const WarpBlock& warp, Vector i, Vector j) {
  const Rect& in = warp.inside;
  const bool all_inside = bits(inside(i, j, in)) == kAll;
  const Offsets places(all_inside
                           ? offsets(warp, i, j)
                           : offsets(warp, clamped(i, in.x0, in.x1), clamped(j, in.y0, in.y1)));
  Vector pixels = load_lanes(warp.source, places.at);
  if constexpr (kFetch != Fetch::rgb) pixels = WHOLE(and)(pixels, OP(set1_epi32)(255));
  if constexpr (kFetch == Fetch::planes)
    for (int c = 1; c < 3; ++c) {
      const Vector levels = load_lanes(warp.source + c * warp.channel, places.at);
      pixels = WHOLE(or)(pixels,
                         OP(slli_epi32)(WHOLE(and)(levels, OP(set1_epi32)(255)), c == 1 ? 8 : 16));
    }
  if (all_inside || warp.clamp) return pixels;
  for (int b = warp.bounds->size() - 1; b >= 0; --b) {  // the first bound decides
    const Bound& bound = (*warp.bounds)[b];
    pixels = filled(pixels, inside(i, j, bound.rect), fill_lane(bound.fill));
  }
  return pixels;
}
