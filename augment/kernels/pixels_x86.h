// What the warp kernels of AVX2 and AVX-512 share: pixels as 32-bit lanes (red, green, blue from
// the lowest byte on; gray in the lowest), how they are fetched and where they are put. All of it
// has internal linkage, see targets.h.
#pragma once

#include <cstring>

#include "augment/kernels/kernels.h"
#include "augment/kernels/targets.h"

#if MILLRACE_X86

namespace millrace {
namespace {

/// Where the channels of a source pixel lie.
enum class Fetch { gray, rgb, planes };

inline Fetch fetch_of(const WarpBlock& warp, const Canvas& canvas) {
  return canvas.channels == 1 ? Fetch::gray : warp.channel == 1 ? Fetch::rgb : Fetch::planes;
}

/// Whether offsets may be taken in front of pixels 3 bytes or 1 byte apart: taps are read in pairs.
inline bool side_by_side(const WarpBlock& warp, Fetch fetch) {
  const std::ptrdiff_t step = fetch == Fetch::rgb ? 3 : 1;
  return warp.pixel == step || warp.pixel == -step;
}

inline int fill_lane(const Fill& fill) { return fill[0] | fill[1] << 8 | fill[2] << 16; }

/// A byte order for 64, 32 or 16 bytes; lanes of 16 are alike.
struct LaneOrder {
  alignas(64) std::int8_t at[64];
};

template <class Function>
constexpr LaneOrder lane_order(Function&& function) {
  LaneOrder order{};
  for (int i = 0; i < 64; ++i) order.at[i] = static_cast<std::int8_t>(function(i % 16));
  return order;
}

// ---- AVX-512: 16 pixels -----------------------------------------------------------------------

/// Positions of 16 pixels of a row.
struct Positions512 {
  __m512i u, v;
};

MILLRACE_AVX512 inline __m512i count512() {
  return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/// Where positions come from; kept by value, so that writing pixels can't seem to change them.
class Source512 {
 public:
  MILLRACE_AVX512 explicit Source512(const WarpBlock& warp)
      : stored_u_(warp.u),
        stored_v_(warp.v),
        u_0_(warp.u_0),
        u_x_(warp.u_x),
        u_y_(warp.u_y),
        v_0_(warp.v_0),
        v_x_(warp.v_x),
        v_y_(warp.v_y),
        along_u_(_mm512_mullo_epi32(count512(), _mm512_set1_epi32(static_cast<int>(u_x_)))),
        along_v_(_mm512_mullo_epi32(count512(), _mm512_set1_epi32(static_cast<int>(v_x_)))) {}

  /// Those of pixels (x, y) and on.
  MILLRACE_AVX512 Positions512 at(int x, int y) const {
    if (stored_u_ != nullptr)
      return {_mm512_loadu_si512(stored_u_ + x), _mm512_loadu_si512(stored_v_ + x)};
    const auto i = static_cast<std::uint32_t>(x), j = static_cast<std::uint32_t>(y);
    const auto u = static_cast<int>(u_0_ + u_x_ * i + u_y_ * j);
    const auto v = static_cast<int>(v_0_ + v_x_ * i + v_y_ * j);
    return {_mm512_add_epi32(_mm512_set1_epi32(u), along_u_),
            _mm512_add_epi32(_mm512_set1_epi32(v), along_v_)};
  }

 private:
  const std::int32_t* stored_u_;
  const std::int32_t* stored_v_;
  std::uint32_t u_0_, u_x_, u_y_, v_0_, v_x_, v_y_;
  __m512i along_u_, along_v_;
};

/// Lanes with low <= value < high.
MILLRACE_AVX512 inline __mmask16 between512(__m512i value, int low, int high) {
  return _mm512_cmplt_epu32_mask(_mm512_sub_epi32(value, _mm512_set1_epi32(low)),
                                 _mm512_set1_epi32(high - low));
}

MILLRACE_AVX512 inline __mmask16 inside512(__m512i i, __m512i j, const Rect& r) {
  return between512(i, r.x0, r.x1) & between512(j, r.y0, r.y1);
}

MILLRACE_AVX512 inline __m512i clamp512(__m512i value, int low, int high) {
  return _mm512_max_epi32(_mm512_min_epi32(value, _mm512_set1_epi32(high - 1)),
                          _mm512_set1_epi32(low));
}

MILLRACE_AVX512 inline __m512i offsets512(const WarpBlock& warp, __m512i i, __m512i j) {
  return _mm512_add_epi32(_mm512_mullo_epi32(i, _mm512_set1_epi32(static_cast<int>(warp.pixel))),
                          _mm512_mullo_epi32(j, _mm512_set1_epi32(static_cast<int>(warp.row))));
}

/// Byte offsets of 16 pixels, stored so that each lane can be loaded by itself. For 4 bytes that is
/// about as fast as a gather, for 8 it takes a third less (docs/kernels.md).
struct Offsets512 {
  alignas(64) std::int32_t at[16];

  MILLRACE_AVX512 explicit Offsets512(__m512i offsets) { _mm512_store_si512(at, offsets); }
};

MILLRACE_AVX512 inline __m512i load_lanes(const std::uint8_t* from, const Offsets512& offsets) {
  int lane[16];
  for (int k = 0; k < 16; ++k) std::memcpy(&lane[k], from + offsets.at[k], 4);
  return _mm512_setr_epi32(lane[0], lane[1], lane[2], lane[3], lane[4], lane[5], lane[6], lane[7],
                           lane[8], lane[9], lane[10], lane[11], lane[12], lane[13], lane[14],
                           lane[15]);
}

template <Fetch kFetch>
MILLRACE_AVX512 inline __m512i fetch512(const WarpBlock& warp, const Offsets512& offsets) {
  const __m512i first = load_lanes(warp.source, offsets);
  if constexpr (kFetch == Fetch::rgb) return first;
  const __m512i byte = _mm512_set1_epi32(255);
  __m512i pixels = _mm512_and_si512(first, byte);
  if constexpr (kFetch == Fetch::planes) {
    const __m512i green = load_lanes(warp.source + warp.channel, offsets);
    const __m512i blue = load_lanes(warp.source + 2 * warp.channel, offsets);
    pixels = _mm512_or_si512(pixels, _mm512_slli_epi32(_mm512_and_si512(green, byte), 8));
    pixels = _mm512_or_si512(pixels, _mm512_slli_epi32(_mm512_and_si512(blue, byte), 16));
  }
  return pixels;
}

/// Writes the lowest n pixels, n in 1..16.
MILLRACE_AVX512 inline void put512(const Canvas& canvas, int x, int y, int n, __m512i pixels) {
  std::uint8_t* out = canvas.at(x, y);
  const auto valid = static_cast<__mmask16>((1u << n) - 1);
  if (canvas.pixel == 3) {
    alignas(64) static constexpr LaneOrder kRgb = [] {
      LaneOrder order{};
      for (int i = 0; i < 64; ++i)
        order.at[i] = static_cast<std::int8_t>(i < 48 ? i / 3 * 4 + i % 3 : 0);
      return order;
    }();
    _mm512_mask_storeu_epi8(out, (__mmask64{1} << (3 * n)) - 1,
                            _mm512_permutexvar_epi8(_mm512_load_si512(kRgb.at), pixels));
    return;
  }
  _mm_mask_storeu_epi8(out, valid, _mm512_cvtepi32_epi8(pixels));
  if (canvas.channels == 1) return;
  _mm_mask_storeu_epi8(out + canvas.channel, valid,
                       _mm512_cvtepi32_epi8(_mm512_srli_epi32(pixels, 8)));
  _mm_mask_storeu_epi8(out + 2 * canvas.channel, valid,
                       _mm512_cvtepi32_epi8(_mm512_srli_epi32(pixels, 16)));
}

// ---- AVX2: 8 pixels -----------------------------------------------------------------------------

struct Positions256 {
  __m256i u, v;
};

MILLRACE_AVX2 inline __m256i load256(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

class Source256 {
 public:
  MILLRACE_AVX2 explicit Source256(const WarpBlock& warp)
      : stored_u_(warp.u),
        stored_v_(warp.v),
        u_0_(warp.u_0),
        u_x_(warp.u_x),
        u_y_(warp.u_y),
        v_0_(warp.v_0),
        v_x_(warp.v_x),
        v_y_(warp.v_y) {
    const __m256i count = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    along_u_ = _mm256_mullo_epi32(count, _mm256_set1_epi32(static_cast<int>(u_x_)));
    along_v_ = _mm256_mullo_epi32(count, _mm256_set1_epi32(static_cast<int>(v_x_)));
  }

  MILLRACE_AVX2 Positions256 at(int x, int y) const {
    if (stored_u_ != nullptr) return {load256(stored_u_ + x), load256(stored_v_ + x)};
    const auto i = static_cast<std::uint32_t>(x), j = static_cast<std::uint32_t>(y);
    const auto u = static_cast<int>(u_0_ + u_x_ * i + u_y_ * j);
    const auto v = static_cast<int>(v_0_ + v_x_ * i + v_y_ * j);
    return {_mm256_add_epi32(_mm256_set1_epi32(u), along_u_),
            _mm256_add_epi32(_mm256_set1_epi32(v), along_v_)};
  }

  /// Those of 8 pixels from column x on, which lie 8 behind `before`.
  MILLRACE_AVX2 Positions256 next(const Positions256& before, int x) const {
    if (stored_u_ != nullptr) return {load256(stored_u_ + x), load256(stored_v_ + x)};
    return {_mm256_add_epi32(before.u, _mm256_set1_epi32(static_cast<int>(8 * u_x_))),
            _mm256_add_epi32(before.v, _mm256_set1_epi32(static_cast<int>(8 * v_x_)))};
  }

 private:
  const std::int32_t* stored_u_;
  const std::int32_t* stored_v_;
  std::uint32_t u_0_, u_x_, u_y_, v_0_, v_x_, v_y_;
  __m256i along_u_, along_v_;
};

/// All ones in lanes with low <= value < high.
MILLRACE_AVX2 inline __m256i between256(__m256i value, int low, int high) {
  return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(low), value),
                             _mm256_cmpgt_epi32(_mm256_set1_epi32(high), value));
}

MILLRACE_AVX2 inline __m256i inside256(__m256i i, __m256i j, const Rect& r) {
  return _mm256_and_si256(between256(i, r.x0, r.x1), between256(j, r.y0, r.y1));
}

MILLRACE_AVX2 inline __m256i clamp256(__m256i value, int low, int high) {
  return _mm256_max_epi32(_mm256_min_epi32(value, _mm256_set1_epi32(high - 1)),
                          _mm256_set1_epi32(low));
}

MILLRACE_AVX2 inline __m256i offsets256(const WarpBlock& warp, __m256i i, __m256i j) {
  return _mm256_add_epi32(_mm256_mullo_epi32(i, _mm256_set1_epi32(static_cast<int>(warp.pixel))),
                          _mm256_mullo_epi32(j, _mm256_set1_epi32(static_cast<int>(warp.row))));
}

struct Offsets256 {
  alignas(32) std::int32_t at[8];

  MILLRACE_AVX2 explicit Offsets256(__m256i offsets) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(at), offsets);
  }
};

MILLRACE_AVX2 inline __m256i load_lanes(const std::uint8_t* from, const Offsets256& offsets) {
  int lane[8];
  for (int k = 0; k < 8; ++k) std::memcpy(&lane[k], from + offsets.at[k], 4);
  return _mm256_setr_epi32(lane[0], lane[1], lane[2], lane[3], lane[4], lane[5], lane[6], lane[7]);
}

template <Fetch kFetch>
MILLRACE_AVX2 inline __m256i fetch256(const WarpBlock& warp, const Offsets256& offsets) {
  const __m256i first = load_lanes(warp.source, offsets);
  if constexpr (kFetch == Fetch::rgb) return first;
  const __m256i byte = _mm256_set1_epi32(255);
  __m256i pixels = _mm256_and_si256(first, byte);
  if constexpr (kFetch == Fetch::planes) {
    const __m256i green = load_lanes(warp.source + warp.channel, offsets);
    const __m256i blue = load_lanes(warp.source + 2 * warp.channel, offsets);
    pixels = _mm256_or_si256(pixels, _mm256_slli_epi32(_mm256_and_si256(green, byte), 8));
    pixels = _mm256_or_si256(pixels, _mm256_slli_epi32(_mm256_and_si256(blue, byte), 16));
  }
  return pixels;
}

/// Writes the lowest n pixels, n in 1..8.
MILLRACE_AVX2 inline void put256(const Canvas& canvas, int x, int y, int n, __m256i pixels) {
  // Of every lane of 4 pixels, either 12 bytes of RGB or 4 of each channel; then the lanes meet.
  static constexpr LaneOrder kRgb =
      lane_order([](int i) { return i < 12 ? i / 3 * 4 + i % 3 : -1; });
  static constexpr LaneOrder kPlanes = lane_order([](int i) { return i % 4 * 4 + i / 4; });
  const bool rgb = canvas.pixel == 3;
  const __m256i grouped = _mm256_shuffle_epi8(pixels, load256(rgb ? kRgb.at : kPlanes.at));
  const __m256i together =
      _mm256_permutevar8x32_epi32(grouped, rgb ? _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7)
                                               : _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  std::uint8_t* out = canvas.at(x, y);
  const __m128i low = _mm256_castsi256_si128(together);
  const __m128i high = _mm256_extracti128_si256(together, 1);
  const auto store8 = [](std::uint8_t* to, long long bytes) { std::memcpy(to, &bytes, 8); };
  if (n == 8) {
    store8(out, _mm_cvtsi128_si64(low));
    if (canvas.channels == 1) return;
    const std::ptrdiff_t step = rgb ? 8 : canvas.channel;
    store8(out + step, _mm_extract_epi64(low, 1));
    store8(out + 2 * step, _mm_cvtsi128_si64(high));
    return;
  }
  alignas(32) std::uint8_t bytes[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(bytes), together);
  const auto count = static_cast<std::size_t>(n);
  if (rgb) {
    std::memcpy(out, bytes, 3 * count);
    return;
  }
  for (int c = 0; c < canvas.channels; ++c)
    std::memcpy(out + c * canvas.channel, bytes + 8 * c, count);
}

}  // namespace
}  // namespace millrace

#endif
