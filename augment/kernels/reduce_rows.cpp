// Filter::reduce, first axis: weighted sums of rows, from bytes to numbers with kRowBits of
// fraction.
#include "augment/kernels/kernels.h"
#include "augment/kernels/targets.h"

namespace millrace::augment {
namespace {

constexpr int kDrop = kTapBits - kRowBits;

void reduce_rows(const std::uint8_t* in, std::ptrdiff_t row, const std::int16_t* weights, int taps,
                 int bytes, std::int16_t* out) {
  for (int i = 0; i < bytes; ++i) {
    std::int32_t sum = 1 << (kDrop - 1);
    for (int k = 0; k < taps; ++k) sum += weights[k] * in[k * row + i];
    out[i] = static_cast<std::int16_t>(sum >> kDrop);
  }
}

#if MILLRACE_X86

// Multiplies two rows at a time, widened to 16 bits and interleaved, by a pair of weights.
// Interleaving and packing both work in lanes of 16 bytes, so the order comes out right.

inline int pair_of(const std::int16_t* weights) {
  return static_cast<std::uint16_t>(weights[0]) | weights[1] << 16;
}

MILLRACE_AVX2 void reduce_rows_avx2(const std::uint8_t* in, std::ptrdiff_t row,
                                    const std::int16_t* weights, int taps, int bytes,
                                    std::int16_t* out) {
  const __m256i round = _mm256_set1_epi32(1 << (kDrop - 1));
  for (int i = 0; i < bytes; i += 32) {
    __m256i sums[4] = {round, round, round, round};
    const std::uint8_t* from = in + i;
    for (int k = 0; k < taps; k += 2, from += 2 * row) {
      const std::uint8_t* next = k + 1 < taps ? from + row : from;
      const __m256i pair = _mm256_set1_epi32(pair_of(weights + k));
      for (int h = 0; h < 2; ++h) {
        const __m256i a =
            _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16 * h)));
        const __m256i b =
            _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(next + 16 * h)));
        sums[2 * h] =
            _mm256_add_epi32(sums[2 * h], _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), pair));
        sums[2 * h + 1] =
            _mm256_add_epi32(sums[2 * h + 1], _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), pair));
      }
    }
    for (int h = 0; h < 2 && i + 16 * h < bytes; ++h)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i + 16 * h),
                          _mm256_packs_epi32(_mm256_srai_epi32(sums[2 * h], kDrop),
                                             _mm256_srai_epi32(sums[2 * h + 1], kDrop)));
  }
}

/// Interleaves 64 bytes of two rows before widening them: fewer instructions than the reverse, but
/// a lane then holds 16 neighbours, and the result has to be reordered.
MILLRACE_AVX512 void reduce_rows_512(const std::uint8_t* in, std::ptrdiff_t row,
                                     const std::int16_t* weights, int taps, int bytes,
                                     std::int16_t* out) {
  const __m512i round = _mm512_set1_epi32(1 << (kDrop - 1));
  const __m512i zero = _mm512_setzero_si512();
  // Select the first and the last 32 numbers from two results, whose lanes hold 8 numbers of each
  // 16.
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (int i = 0; i < bytes; i += 64) {
    __m512i sums[4] = {round, round, round, round};
    const std::uint8_t* from = in + i;
    for (int k = 0; k < taps; k += 2, from += 2 * row) {
      const __m512i a = _mm512_loadu_si512(from);
      const __m512i b = _mm512_loadu_si512(k + 1 < taps ? from + row : from);
      const __m512i pair = _mm512_set1_epi32(pair_of(weights + k));
      const __m512i low = _mm512_unpacklo_epi8(a, b), high = _mm512_unpackhi_epi8(a, b);
      sums[0] = _mm512_dpwssd_epi32(sums[0], _mm512_unpacklo_epi8(low, zero), pair);
      sums[1] = _mm512_dpwssd_epi32(sums[1], _mm512_unpackhi_epi8(low, zero), pair);
      sums[2] = _mm512_dpwssd_epi32(sums[2], _mm512_unpacklo_epi8(high, zero), pair);
      sums[3] = _mm512_dpwssd_epi32(sums[3], _mm512_unpackhi_epi8(high, zero), pair);
    }
    for (__m512i& sum : sums) sum = _mm512_srai_epi32(sum, kDrop);
    const __m512i low = _mm512_packs_epi32(sums[0], sums[1]);
    const __m512i high = _mm512_packs_epi32(sums[2], sums[3]);
    _mm512_storeu_si512(out + i, _mm512_permutex2var_epi64(low, first, high));
    if (i + 32 < bytes)
      _mm512_storeu_si512(out + i + 32, _mm512_permutex2var_epi64(low, last, high));
  }
}

#endif

}  // namespace

void add_reduce_rows_kernels([[maybe_unused]] base::Simd level, Kernels& table) {
  table.reduce_rows = reduce_rows;
#if MILLRACE_X86
  if (level == base::Simd::avx2) table.reduce_rows = reduce_rows_avx2;
  if (level == base::Simd::avx512) table.reduce_rows = reduce_rows_512;
#endif
}

}  // namespace millrace::augment
