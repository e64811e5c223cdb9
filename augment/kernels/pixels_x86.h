// Primitives of the warp kernels per SIMD level: vectors of pixels as 32-bit lanes (red, green,
// blue from the lowest byte on; gray in the lowest). Namespaces avx2 and avx512 use the same names,
// so that compile_per_level.h can compile one source for both. Everything has internal linkage; see
// targets.h.
#pragma once

#include <cstring>

#include "augment/kernels/kernels.h"
#include "augment/kernels/targets.h"

#if MILLRACE_X86

namespace millrace::augment {
namespace {

/// Layout of a source pixel's channels.
enum class Fetch { gray, rgb, planes };

inline Fetch fetch_of(const WarpBlock& warp, const Canvas& canvas) {
  return canvas.channels == 1 ? Fetch::gray : warp.channel == 1 ? Fetch::rgb : Fetch::planes;
}

/// Returns whether two neighbouring taps can be read together: pixels are 3 bytes or 1 byte apart
/// in either direction.
inline bool side_by_side(const WarpBlock& warp, Fetch fetch) {
  const std::ptrdiff_t step = fetch == Fetch::rgb ? 3 : 1;
  return warp.pixel == step || warp.pixel == -step;
}

inline int fill_lane(const Fill& fill) { return fill[0] | fill[1] << 8 | fill[2] << 16; }

/// A byte order for 64, 32 or 16 bytes; equal in all lanes of 16.
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

namespace avx512 {

using Vector = __m512i;
using Mask = __mmask16;
constexpr int kLanes = 16;
constexpr unsigned kAll = (1u << kLanes) - 1;

MILLRACE_AVX512 inline Vector load(const void* from) { return _mm512_loadu_si512(from); }

MILLRACE_AVX512 inline Vector count() {
  return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/// Marks lanes with low <= value < high.
MILLRACE_AVX512 inline Mask between(Vector value, int low, int high) {
  return _mm512_cmplt_epu32_mask(_mm512_sub_epi32(value, _mm512_set1_epi32(low)),
                                 _mm512_set1_epi32(high - low));
}

MILLRACE_AVX512 inline Mask both(Mask a, Mask b) { return a & b; }
MILLRACE_AVX512 inline unsigned bits(Mask mask) { return mask; }

/// Returns `pixels` where `seen` is set, otherwise `fill`.
MILLRACE_AVX512 inline Vector filled(Vector pixels, Mask seen, int fill) {
  return _mm512_mask_set1_epi32(pixels, static_cast<Mask>(~seen), fill);
}

/// Returns lanes 0, 2, ... of `even` and 1, 3, ... of `odd`.
MILLRACE_AVX512 inline Vector in_turn(Vector even, Vector odd) {
  return _mm512_mask_mov_epi32(even, 0xAAAA, odd);
}

/// Loads four bytes from each offset. Loading lanes one by one is about as fast as a gather for 4
/// bytes, and takes a third less time for 8 (docs/explanation/kernels.md).
MILLRACE_AVX512 inline Vector load_lanes(const std::uint8_t* from, const std::int32_t* offsets) {
  int lane[16];
  for (int k = 0; k < 16; ++k) std::memcpy(&lane[k], from + offsets[k], 4);
  return _mm512_setr_epi32(lane[0], lane[1], lane[2], lane[3], lane[4], lane[5], lane[6], lane[7],
                           lane[8], lane[9], lane[10], lane[11], lane[12], lane[13], lane[14],
                           lane[15]);
}

/// Loads eight bytes from every second offset.
MILLRACE_AVX512 inline Vector load_pieces(const std::uint8_t* from, const std::int32_t* offsets) {
  long long pieces[8];
  for (int k = 0; k < 8; ++k) std::memcpy(&pieces[k], from + offsets[2 * k], 8);
  return _mm512_setr_epi64(pieces[0], pieces[1], pieces[2], pieces[3], pieces[4], pieces[5],
                           pieces[6], pieces[7]);
}

/// Writes the lowest n pixels, n in 1..16.
MILLRACE_AVX512 inline void put(const Canvas& canvas, int x, int y, int n, Vector pixels) {
  std::uint8_t* out = canvas.at(x, y);
  const auto valid = static_cast<__mmask16>((1u << n) - 1);
  if (canvas.pixel == 3) {
    static constexpr LaneOrder kRgb = [] {
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

}  // namespace avx512

// ---- AVX2: 8 pixels, the same functions ---------------------------------------------------------

namespace avx2 {

using Vector = __m256i;
using Mask = __m256i;  ///< all ones in selected lanes
constexpr int kLanes = 8;
constexpr unsigned kAll = (1u << kLanes) - 1;

MILLRACE_AVX2 inline Vector load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

MILLRACE_AVX2 inline Vector count() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }

MILLRACE_AVX2 inline Mask between(Vector value, int low, int high) {
  return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(low), value),
                             _mm256_cmpgt_epi32(_mm256_set1_epi32(high), value));
}

MILLRACE_AVX2 inline Mask both(Mask a, Mask b) { return _mm256_and_si256(a, b); }
MILLRACE_AVX2 inline unsigned bits(Mask mask) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(mask)));
}

MILLRACE_AVX2 inline Vector filled(Vector pixels, Mask seen, int fill) {
  return _mm256_blendv_epi8(_mm256_set1_epi32(fill), pixels, seen);
}

MILLRACE_AVX2 inline Vector in_turn(Vector even, Vector odd) {
  return _mm256_blend_epi32(even, odd, 0xAA);
}

MILLRACE_AVX2 inline Vector load_lanes(const std::uint8_t* from, const std::int32_t* offsets) {
  int lane[8];
  for (int k = 0; k < 8; ++k) std::memcpy(&lane[k], from + offsets[k], 4);
  return _mm256_setr_epi32(lane[0], lane[1], lane[2], lane[3], lane[4], lane[5], lane[6], lane[7]);
}

MILLRACE_AVX2 inline Vector load_pieces(const std::uint8_t* from, const std::int32_t* offsets) {
  long long pieces[4];
  for (int k = 0; k < 4; ++k) std::memcpy(&pieces[k], from + offsets[2 * k], 8);
  return _mm256_setr_epi64x(pieces[0], pieces[1], pieces[2], pieces[3]);
}

MILLRACE_AVX2 inline void put(const Canvas& canvas, int x, int y, int n, Vector pixels) {
  // Packs 4 pixels of every lane, to 12 bytes of RGB or 4 of each channel; then the lanes are
  // joined.
  static constexpr LaneOrder kRgb =
      lane_order([](int i) { return i < 12 ? i / 3 * 4 + i % 3 : -1; });
  static constexpr LaneOrder kPlanes = lane_order([](int i) { return i % 4 * 4 + i / 4; });
  const bool rgb = canvas.pixel == 3;
  const Vector grouped = _mm256_shuffle_epi8(pixels, load(rgb ? kRgb.at : kPlanes.at));
  const Vector together =
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

}  // namespace avx2

}  // namespace
}  // namespace millrace::augment

#endif
