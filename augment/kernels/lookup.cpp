// Levels to elements of the batch, by table.
#include <algorithm>
#include <cstring>

#include "augment/kernels/kernels.h"
#include "augment/kernels/targets.h"

namespace millrace {
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

// AVX-512: a byte of 64 elements is looked up by permutations of the table's 256 bytes, one plane
// of bytes after the other; the planes are woven together to elements.

/// table[index[i]] for 64 bytes; `high` marks indices of 128 and more.
MILLRACE_AVX512 inline __m512i permuted(const std::uint8_t* table, __m512i index, __mmask64 high) {
  const __m512i low =
      _mm512_permutex2var_epi8(_mm512_load_si512(table), index, _mm512_load_si512(table + 64));
  const __m512i top = _mm512_permutex2var_epi8(_mm512_load_si512(table + 128), index,
                                               _mm512_load_si512(table + 192));
  return _mm512_mask_blend_epi8(high, low, top);
}

/// The same with a table of its own for every third byte: masks[c] marks those of channel c.
template <int kPeriod>
MILLRACE_AVX512 inline __m512i permuted(const std::uint8_t* table, std::size_t stride,
                                        __m512i index, const __mmask64* masks) {
  const __mmask64 high = _mm512_movepi8_mask(index);
  __m512i result = permuted(table, index, high);
  if constexpr (kPeriod == 3) {
    result = _mm512_mask_mov_epi8(result, masks[1], permuted(table + stride, index, high));
    result = _mm512_mask_mov_epi8(result, masks[2], permuted(table + 2 * stride, index, high));
  }
  return result;
}

/// Puts element groups where weaving the planes, which works in lanes of 16 bytes, leaves them in
/// order.
template <int kBytes>
MILLRACE_AVX512 inline __m512i spread(__m512i levels) {
  if constexpr (kBytes == 4)
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), levels);
  if constexpr (kBytes == 2)
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), levels);
  return levels;
}

/// Up to 64 elements; `masks` as above, for spread levels. Reads and writes `n` of them.
template <int kBytes, int kPeriod>
MILLRACE_AVX512 inline void look_up_64(const std::uint8_t* in, std::size_t n, const Lookup& lookup,
                                       const __mmask64* masks, std::byte* out) {
  const __mmask64 valid = n >= 64 ? ~__mmask64{0} : (__mmask64{1} << n) - 1;
  __m512i index = spread<kBytes>(_mm512_maskz_loadu_epi8(valid, in));
  if (lookup.levels != nullptr)
    index = permuted<kPeriod>(lookup.levels->data(), sizeof(LevelTable), index, masks);
  if constexpr (kBytes == 1) {
    _mm512_mask_storeu_epi8(out, valid, index);
    return;
  }
  const std::uint8_t* planes = lookup.elements->planes[0].data();
  constexpr std::size_t kStride = sizeof(ElementTable);
  const __m512i p0 = permuted<kPeriod>(planes, kStride, index, masks);
  const __m512i p1 = permuted<kPeriod>(planes + 256, kStride, index, masks);
  const __m512i low = _mm512_unpacklo_epi8(p0, p1);
  const __m512i high = _mm512_unpackhi_epi8(p0, p1);
  if constexpr (kBytes == 2) {
    _mm512_mask_storeu_epi8(out, n >= 32 ? ~__mmask64{0} : (__mmask64{1} << (2 * n)) - 1, low);
    if (n > 32)
      _mm512_mask_storeu_epi8(out + 64,
                              n >= 64 ? ~__mmask64{0} : (__mmask64{1} << (2 * n - 64)) - 1, high);
    return;
  }
  const __m512i p2 = permuted<kPeriod>(planes + 512, kStride, index, masks);
  const __m512i p3 = permuted<kPeriod>(planes + 768, kStride, index, masks);
  const __m512i low2 = _mm512_unpacklo_epi8(p2, p3);
  const __m512i high2 = _mm512_unpackhi_epi8(p2, p3);
  const __m512i words[4] = {_mm512_unpacklo_epi16(low, low2), _mm512_unpackhi_epi16(low, low2),
                            _mm512_unpacklo_epi16(high, high2), _mm512_unpackhi_epi16(high, high2)};
  if (n >= 64) {
    for (int k = 0; k < 4; ++k) _mm512_storeu_si512(out + 64 * k, words[k]);
  } else {
    for (int k = 0; k < 4; ++k)
      _mm512_mask_storeu_epi32(out + 64 * k, static_cast<__mmask16>(valid >> (16 * k)), words[k]);
  }
}

template <int kBytes, int kPeriod>
MILLRACE_AVX512 void look_up_512(const std::uint8_t* in, std::size_t n, const Lookup& lookup,
                                 std::byte* out) {
  __mmask64 masks[3][3] = {};
  if constexpr (kPeriod == 3) {
    alignas(64) std::uint8_t channels[64];
    for (std::size_t phase = 0; phase < 3; ++phase) {
      for (std::size_t i = 0; i < 64; ++i) channels[i] = static_cast<std::uint8_t>((i + phase) % 3);
      const __m512i order = spread<kBytes>(_mm512_load_si512(channels));
      for (std::size_t c = 0; c < 3; ++c)
        masks[phase][c] = _mm512_cmpeq_epi8_mask(order, _mm512_set1_epi8(static_cast<char>(c)));
    }
  }
  std::size_t phase = 0;
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    look_up_64<kBytes, kPeriod>(in + i, 64, lookup, masks[phase], out + i * kBytes);
    phase = phase == 2 ? 0 : phase + 1;
  }
  if (i < n) look_up_64<kBytes, kPeriod>(in + i, n - i, lookup, masks[phase], out + i * kBytes);
}

template <int kBytes>
void look_up_512(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out) {
  if (lookup.period == 3)
    look_up_512<kBytes, 3>(in, n, lookup, out);
  else
    look_up_512<kBytes, 1>(in, n, lookup, out);
}

void copy_levels_512(const std::uint8_t* in, std::size_t n, const Lookup& lookup, std::byte* out) {
  if (lookup.levels == nullptr)
    std::memcpy(out, in, n);
  else
    look_up_512<1>(in, n, lookup, out);
}

#endif

}  // namespace

void add_lookup_kernels(Simd level, Kernels& table) {
  table.lookup8 = copy_levels;
  table.lookup16 = look_up<std::uint16_t>;
  table.lookup32 = look_up<std::uint32_t>;
#if MILLRACE_X86
  // Up to AVX2, loads from a table beat both gathers and two divisions an element.
  if (level == Simd::avx512) {
    table.lookup8 = copy_levels_512;
    table.lookup16 = look_up_512<2>;
    table.lookup32 = look_up_512<4>;
  }
#endif
}

}  // namespace millrace
