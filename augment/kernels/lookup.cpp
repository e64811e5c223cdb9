// Maps levels to elements of the batch by table.
#include <algorithm>
#include <cstring>

#include "augment/kernels/kernels.h"
#include "augment/kernels/targets.h"

namespace millrace::augment {
namespace {

template <class Element, int kPeriod, bool kLevels>
void look_up(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out) {
  std::size_t c = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint8_t level = in[i];
    if constexpr (kLevels) level = lookup.levels[c][level];
    Element element = level;
    if constexpr (sizeof(Element) > 1)
      element = static_cast<Element>(lookup.elements[c].bits[level]);
    std::memcpy(out + i * sizeof(Element), &element, sizeof(Element));
    if constexpr (kPeriod > 1) c = c + 1 == kPeriod ? 0 : c + 1;
  }
}

template <class Element>
void look_up(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out) {
  const bool levels = lookup.levels != nullptr;
  if (lookup.period == 1)
    (levels ? look_up<Element, 1, true> : look_up<Element, 1, false>)(in, n, lookup, out);
  else
    (levels ? look_up<Element, 3, true> : look_up<Element, 3, false>)(in, n, lookup, out);
}

void copy_levels(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out) {
  if (lookup.levels == nullptr)
    std::memcpy(out, in, n);
  else
    look_up<std::uint8_t>(in, n, lookup, out);
}

#if MILLRACE_X86

// AVX2: computes f32, 8 elements at a time, if that gives the table's bits. Otherwise loads
// elements from the table one by one, which is faster than gathers.

/// Constants for eight elements from element 8 `part` on, by channel.
struct Constants256 {
  __m256 mean, inverse, rest;

  MILLRACE_AVX2 Constants256(const Lookup& lookup, int part) {
    alignas(32) float values[3][8];
    for (int i = 0; i < 8; ++i) {
      const ElementTable& table = lookup.elements[(8 * part + i) % lookup.period];
      values[0][i] = table.mean;
      values[1][i] = table.inverse;
      values[2][i] = table.rest;
    }
    mean = _mm256_load_ps(values[0]);
    inverse = _mm256_load_ps(values[1]);
    rest = _mm256_load_ps(values[2]);
  }
};

MILLRACE_AVX2 inline __m256 product(__m256 a, __m256 inverse, __m256 rest) {
  return _mm256_fmadd_ps(a, inverse, _mm256_mul_ps(a, rest));
}

bool is_aligned(const std::byte* at, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(at) % bytes == 0;
}

/// Applies computed_element() to eight levels.
template <bool kPastCaches>
MILLRACE_AVX2 inline void compute_8(const std::uint8_t* in, const Constants256& constants,
                                    std::byte* out) {
  const __m256 level = _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(in))));
  const __m256 x = _mm256_sub_ps(
      product(level, _mm256_set1_ps(kInverse255), _mm256_set1_ps(kRest255)), constants.mean);
  const __m256 elements = product(x, constants.inverse, constants.rest);
  if constexpr (kPastCaches)
    _mm256_stream_ps(reinterpret_cast<float*>(out), elements);
  else
    _mm256_storeu_ps(reinterpret_cast<float*>(out), elements);
}

template <bool kPastCaches>
MILLRACE_AVX2 void compute_all(const std::uint8_t* in, std::size_t n, const Lookup& lookup,
                               std::byte* out) {
  const Constants256 constants[3] = {{lookup, 0}, {lookup, 1}, {lookup, 2}};
  std::size_t i = 0;
  for (; i + 24 <= n; i += 24)
    for (std::size_t part = 0; part < 3; ++part)
      compute_8<kPastCaches>(in + i + 8 * part, constants[part], out + 4 * (i + 8 * part));
  for (std::size_t part = 0; i < n; i += 8, ++part) {
    std::byte last[8 * sizeof(float)];
    compute_8<false>(in + i, constants[part], last);
    std::memcpy(out + 4 * i, last, sizeof(float) * std::min<std::size_t>(8, n - i));
  }
  if constexpr (kPastCaches) _mm_sfence();
}

MILLRACE_AVX2 void look_up_f32_avx2(const std::uint8_t* in, std::size_t n, const Lookup& lookup,
                                    std::byte* out) {
  bool computed = lookup.levels == nullptr;
  for (int c = 0; c < lookup.period; ++c) computed &= lookup.elements[c].computed;
  if (!computed) return look_up<std::uint32_t>(in, n, lookup, out);
  const bool past_caches = lookup.past_caches && is_aligned(out, sizeof(__m256));
  (past_caches ? compute_all<true> : compute_all<false>)(in, n, lookup, out);
}

// AVX-512: looks up one byte of 64 elements by permuting the table's 256 bytes, one plane of bytes
// after the other, and interleaves the planes to elements.

/// 256 bytes to look up, in registers if there are enough.
struct Plane {
  __m512i quarters[4];
};

MILLRACE_AVX512 inline Plane load(const std::uint8_t* table) {
  return {{_mm512_load_si512(table), _mm512_load_si512(table + 64), _mm512_load_si512(table + 128),
           _mm512_load_si512(table + 192)}};
}

/// Returns the plane's byte for each index; `high` marks indices of 128 and more.
MILLRACE_AVX512 inline __m512i permuted(const Plane& plane, __m512i index, __mmask64 high) {
  return _mm512_mask_blend_epi8(
      high, _mm512_permutex2var_epi8(plane.quarters[0], index, plane.quarters[1]),
      _mm512_permutex2var_epi8(plane.quarters[2], index, plane.quarters[3]));
}

/// Tables of one channel: the planes of its elements, and its level table if it has one.
template <int kPlanes>
struct Tables512 {
  Plane levels;
  Plane planes[kPlanes];

  MILLRACE_AVX512 Tables512(const Lookup& lookup, int c) {
    if (lookup.levels != nullptr) levels = load(lookup.levels[c].data());
    if constexpr (kPlanes > 1)
      for (int b = 0; b < kPlanes; ++b)
        planes[b] = load(lookup.elements[c].planes[static_cast<std::size_t>(b)].data());
  }
};

/// Masks of one phase: the elements among 64 that belong to each channel.
struct Turns512 {
  __mmask64 of[3];
};

template <int kPeriod, int kPlanes>
MILLRACE_AVX512 inline __m512i permuted(const Tables512<kPlanes>* tables, int plane, __m512i index,
                                        const Turns512& turns) {
  const __mmask64 high = _mm512_movepi8_mask(index);
  const auto of = [plane](const Tables512<kPlanes>& t) -> const Plane& {
    return plane < 0 ? t.levels : t.planes[plane];
  };
  __m512i result = permuted(of(tables[0]), index, high);
  for (int c = 1; c < kPeriod; ++c)
    result = _mm512_mask_mov_epi8(result, turns.of[c], permuted(of(tables[c]), index, high));
  return result;
}

/// Orders groups of levels so that interleaving the planes, which works in lanes of 16 bytes,
/// leaves the elements in order.
template <int kBytes>
MILLRACE_AVX512 inline __m512i spread(__m512i levels) {
  if constexpr (kBytes == 4)
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), levels);
  if constexpr (kBytes == 2)
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), levels);
  return levels;
}

/// Returns a mask of the lowest n bits; n may lie outside of 0..64.
MILLRACE_AVX512 inline __mmask64 first(std::ptrdiff_t n) {
  return n >= 64 ? ~__mmask64{0} : n <= 0 ? 0 : (__mmask64{1} << n) - 1;
}

enum class Write { some, all, past_caches };

/// Looks up 64 elements, or n of them with Write::some.
template <int kBytes, int kPeriod, bool kLevels, Write kWrite>
MILLRACE_AVX512 inline void look_up_64(const std::uint8_t* in, std::ptrdiff_t n,
                                       const Tables512<kBytes>* tables, const Turns512& turns,
                                       std::byte* out) {
  __m512i index = spread<kBytes>(kWrite == Write::some ? _mm512_maskz_loadu_epi8(first(n), in)
                                                       : _mm512_loadu_si512(in));
  if constexpr (kLevels) index = permuted<kPeriod, kBytes>(tables, -1, index, turns);
  __m512i elements[kBytes];
  if constexpr (kBytes == 1) {
    elements[0] = index;
  } else {
    const __m512i p0 = permuted<kPeriod, kBytes>(tables, 0, index, turns);
    const __m512i p1 = permuted<kPeriod, kBytes>(tables, 1, index, turns);
    elements[0] = _mm512_unpacklo_epi8(p0, p1);
    elements[1] = _mm512_unpackhi_epi8(p0, p1);
  }
  if constexpr (kBytes == 4) {
    const __m512i p2 = permuted<kPeriod, kBytes>(tables, 2, index, turns);
    const __m512i p3 = permuted<kPeriod, kBytes>(tables, 3, index, turns);
    const __m512i low = _mm512_unpacklo_epi8(p2, p3), high = _mm512_unpackhi_epi8(p2, p3);
    elements[3] = _mm512_unpackhi_epi16(elements[1], high);
    elements[2] = _mm512_unpacklo_epi16(elements[1], high);
    elements[1] = _mm512_unpackhi_epi16(elements[0], low);
    elements[0] = _mm512_unpacklo_epi16(elements[0], low);
  }
  for (int k = 0; k < kBytes; ++k) {
    if constexpr (kWrite == Write::some)
      _mm512_mask_storeu_epi8(out + 64 * k, first(n * kBytes - 64 * k), elements[k]);
    else if constexpr (kWrite == Write::all)
      _mm512_storeu_si512(out + 64 * k, elements[k]);
    else
      _mm512_stream_si512(reinterpret_cast<__m512i*>(out + 64 * k), elements[k]);
  }
}

template <int kBytes, int kPeriod, bool kLevels>
MILLRACE_AVX512 void look_up_512(const std::uint8_t* in, std::size_t n, const Lookup& lookup,
                                 std::byte* out) {
  const Tables512<kBytes> tables[3] = {
      {lookup, 0}, {lookup, kPeriod == 3 ? 1 : 0}, {lookup, kPeriod == 3 ? 2 : 0}};
  Turns512 turns[3] = {};
  if constexpr (kPeriod == 3) {
    for (int phase = 0; phase < 3; ++phase) {
      alignas(64) std::uint8_t channels[64];
      for (int i = 0; i < 64; ++i) channels[i] = static_cast<std::uint8_t>((i + phase) % 3);
      const __m512i order = spread<kBytes>(_mm512_load_si512(channels));
      for (int c = 0; c < 3; ++c)
        turns[phase].of[c] = _mm512_cmpeq_epi8_mask(order, _mm512_set1_epi8(static_cast<char>(c)));
    }
  }
  int phase = 0;
  std::size_t i = 0;
  if (lookup.past_caches && is_aligned(out, sizeof(__m512i))) {
    for (; i + 64 <= n; i += 64, phase = phase == 2 ? 0 : phase + 1)
      look_up_64<kBytes, kPeriod, kLevels, Write::past_caches>(in + i, 64, tables, turns[phase],
                                                               out + i * kBytes);
    _mm_sfence();
  }
  for (; i + 64 <= n; i += 64, phase = phase == 2 ? 0 : phase + 1)
    look_up_64<kBytes, kPeriod, kLevels, Write::all>(in + i, 64, tables, turns[phase],
                                                     out + i * kBytes);
  if (i < n)
    look_up_64<kBytes, kPeriod, kLevels, Write::some>(in + i, static_cast<std::ptrdiff_t>(n - i),
                                                      tables, turns[phase], out + i * kBytes);
}

template <int kBytes>
void look_up_512(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out) {
  const bool levels = lookup.levels != nullptr;
  if (lookup.period == 1)
    (levels ? look_up_512<kBytes, 1, true> : look_up_512<kBytes, 1, false>)(in, n, lookup, out);
  else
    (levels ? look_up_512<kBytes, 3, true> : look_up_512<kBytes, 3, false>)(in, n, lookup, out);
}

void copy_levels_512(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out) {
  if (lookup.levels == nullptr)
    std::memcpy(out, in, n);
  else
    look_up_512<1>(in, n, lookup, out);
}

#endif

}  // namespace

void add_lookup_kernels([[maybe_unused]] base::Simd level, Kernels& table) {
  table.lookup8 = copy_levels;
  table.lookup16 = look_up<std::uint16_t>;
  table.lookup32 = look_up<std::uint32_t>;
#if MILLRACE_X86
  if (level == base::Simd::avx2) table.lookup32 = look_up_f32_avx2;
  if (level == base::Simd::avx512) {
    table.lookup8 = copy_levels_512;
    table.lookup16 = look_up_512<2>;
    table.lookup32 = look_up_512<4>;
  }
#endif
}

}  // namespace millrace::augment
