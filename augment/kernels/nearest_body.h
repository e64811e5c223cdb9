// Filter::nearest with one vector of pixels at a time; included by compile_per_level.h.

template <Fetch kFetch>
SIMD void nearest(const WarpBlock& shared, const Rect& rect, const Canvas& shared_canvas) {
  const WarpBlock warp = shared;  // copies, see Source
  const Canvas canvas = shared_canvas;
  const Source source(warp);
  for (int y = rect.y0; y < rect.y1; ++y) {
    for (int x = rect.x0; x < rect.x1; x += kLanes) {
      const Positions at = source.at(x, y);
      put(canvas, x, y, std::min(kLanes, rect.x1 - x),
          fetch<kFetch>(warp, OP(srai_epi32)(at.u, warp.bits), OP(srai_epi32)(at.v, warp.bits)));
    }
  }
}

inline void nearest(const WarpBlock& warp, const Rect& rect, const Canvas& canvas) {
  switch (fetch_of(warp, canvas)) {
    case Fetch::gray:
      return nearest<Fetch::gray>(warp, rect, canvas);
    case Fetch::rgb:
      return nearest<Fetch::rgb>(warp, rect, canvas);
    case Fetch::planes:
      return nearest<Fetch::planes>(warp, rect, canvas);
  }
}
