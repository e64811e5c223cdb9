// Filter::reduce, first axis: weighted sums of rows, from bytes to numbers with kRowBits of
// fraction.
#include <algorithm>
#include <cstring>

#include "augment/kernels/kernels.h"
#include "augment/kernels/targets.h"

namespace millrace::augment {
namespace {

constexpr int kRowDrop = kTapBits - kRowBits;

void reduce_rows(const std::uint8_t* in, std::ptrdiff_t row, const std::int16_t* weights, int taps,
                 int bytes, std::int16_t* out) {
  for (int i = 0; i < bytes; ++i) {
    std::int32_t sum = 1 << (kRowDrop - 1);
    for (int k = 0; k < taps; ++k) sum += weights[k] * in[k * row + i];
    out[i] = static_cast<std::int16_t>(sum >> kRowDrop);
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
  const __m256i round = _mm256_set1_epi32(1 << (kRowDrop - 1));
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
                          _mm256_packs_epi32(_mm256_srai_epi32(sums[2 * h], kRowDrop),
                                             _mm256_srai_epi32(sums[2 * h + 1], kRowDrop)));
  }
}

/// Interleaves 64 bytes of two rows before widening them: fewer instructions than the reverse, but
/// a lane then holds 16 neighbours, and the result has to be reordered.
MILLRACE_AVX512 void reduce_rows_512(const std::uint8_t* in, std::ptrdiff_t row,
                                     const std::int16_t* weights, int taps, int bytes,
                                     std::int16_t* out) {
  const __m512i round = _mm512_set1_epi32(1 << (kRowDrop - 1));
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
    for (__m512i& sum : sums) sum = _mm512_srai_epi32(sum, kRowDrop);
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

// Filter::reduce, second axis: weighted sums of the pixels of a reduced row, rounded to levels.
namespace {

constexpr int kPixelDrop = kTapBits + kRowBits;
constexpr std::int32_t kHalf = 1 << (kPixelDrop - 1);

void reduce_some(const std::int16_t* in, const Taps& taps, int begin, int end, int channels,
                 std::uint8_t* out) {
  for (int o = begin; o < end; ++o) {
    const std::int16_t* weights = taps.weights + static_cast<std::ptrdiff_t>(o) * taps.stride;
    const std::int16_t* from = in + static_cast<std::ptrdiff_t>(taps.first[o]) * channels;
    for (int c = 0; c < channels; ++c) {
      std::int32_t sum = kHalf;
      for (int k = 0; k < taps.counts[o]; ++k) sum += weights[k] * from[k * channels + c];
      out[o * channels + c] = static_cast<std::uint8_t>(sum >> kPixelDrop);
    }
  }
}

void reduce_pixels(const std::int16_t* in, const Taps& taps, const Windows&, int channels,
                   std::uint8_t* out) {
  reduce_some(in, taps, 0, taps.outputs, channels, out);
}

void no_windows(const Taps&, int, Windows& windows) { windows.pairs = 0; }

#if MILLRACE_X86

// ---- AVX2 -------------------------------------------------------------------------------------

MILLRACE_AVX2 inline __m128i load128(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

/// Prepares RGB: a base for each output and, for each pair of its taps, the weights as four 32-bit
/// lanes. Moves a base to the left if taps of its neighbours would lie behind the row.
void prepare_pairs(const Taps& taps, int channels, Windows& windows) {
  windows.pairs = 0;
  if (channels != 3) return;
  const int pairs = (taps.most + 1) / 2;
  int end = 0;
  for (int o = 0; o < taps.outputs; ++o) end = std::max(end, taps.first[o] + taps.counts[o]);
  const int last = std::max(0, end - 2 * pairs);
  // Outputs o and o + 2 share a vector, so that packing leaves four of them in order.
  constexpr int kOutput = 8;
  std::int16_t* at = windows.orders_and_weights;
  for (int o = 0; o < taps.outputs; o += 4, at += 4 * kOutput * pairs) {
    std::memset(at, 0, static_cast<std::size_t>(4 * kOutput * pairs) * sizeof(std::int16_t));
    for (int p = 0; p < 4; ++p) {
      if (o + p >= taps.outputs) {
        windows.bases[o + p] = 0;
        continue;
      }
      const int base = std::min(taps.first[o + p], last);
      windows.bases[o + p] = base * 3;
      for (int k = 0; k < taps.counts[o + p]; ++k) {
        const int tap = taps.first[o + p] - base + k;
        std::int16_t* lanes = at + (tap / 2 * 4 + p % 2 * 2 + p / 2) * kOutput + tap % 2;
        const std::int16_t weight =
            taps.weights[static_cast<std::ptrdiff_t>(o + p) * taps.stride + k];
        for (int c = 0; c < 4; ++c) lanes[2 * c] = weight;
      }
    }
  }
  windows.pairs = pairs;
}

/// kPairs: number of pairs of taps, or 0 for any.
template <int kPairs>
MILLRACE_AVX2 void reduce_rgb_avx2(const std::int16_t* in, int outputs, const Windows& windows,
                                   std::uint8_t* out) {
  // Orders 8 numbers r g b r' g' b' . . as one pair per channel.
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1));
  const __m128i first_three = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  const __m256i half = _mm256_set1_epi32(kHalf);
  const int pairs = kPairs > 0 ? kPairs : windows.pairs;
  const std::int32_t* base = windows.bases;
  const auto* weights = reinterpret_cast<const __m256i*>(windows.orders_and_weights);
  std::uint8_t* const end = out + outputs * 3;
  for (; out < end; out += 12, base += 4) {
    __m256i sums[2] = {half, half};
    for (int k = 0; k < pairs; ++k)
      for (int p = 0; p < 2; ++p) {
        const __m256i pixels =
            _mm256_inserti128_si256(_mm256_castsi128_si256(load128(in + base[p] + 6 * k)),
                                    load128(in + base[p + 2] + 6 * k), 1);
        sums[p] = _mm256_add_epi32(
            sums[p], _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, order), *weights++));
      }
    const __m256i both = _mm256_packs_epi32(_mm256_srli_epi32(sums[0], kPixelDrop),
                                            _mm256_srli_epi32(sums[1], kPixelDrop));
    const __m128i levels = _mm_shuffle_epi8(
        _mm_packus_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)),
        first_three);
    if (end - out >= 16) {  // the next four outputs overwrite the excess
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), levels);
      continue;
    }
    alignas(16) std::uint8_t bytes[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(bytes), levels);
    std::memcpy(out, bytes, static_cast<std::size_t>(std::min<std::ptrdiff_t>(end - out, 12)));
  }
}

/// Returns the sums of one gray output, in two parts.
MILLRACE_AVX2 inline __m128i sum_gray(const std::int16_t* from, const std::int16_t* weights,
                                      int count) {
  __m128i sums = _mm_setzero_si128();
  for (int k = 0; k < count; k += 4)
    sums = _mm_add_epi32(
        sums, _mm_madd_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + k)),
                             _mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights + k))));
  return sums;
}

MILLRACE_AVX2 void reduce_gray_avx2(const std::int16_t* in, const Taps& taps, std::uint8_t* out) {
  const __m128i half = _mm_set1_epi32(kHalf);
  int o = 0;
  for (; o + 4 <= taps.outputs; o += 4) {
    __m128i sums[4];
    for (int p = 0; p < 4; ++p)
      sums[p] = sum_gray(in + taps.first[o + p],
                         taps.weights + static_cast<std::ptrdiff_t>(o + p) * taps.stride,
                         taps.counts[o + p]);
    const __m128i both =
        _mm_hadd_epi32(_mm_unpacklo_epi64(sums[0], sums[1]), _mm_unpacklo_epi64(sums[2], sums[3]));
    const __m128i levels = _mm_srli_epi32(_mm_add_epi32(both, half), kPixelDrop);
    const std::int32_t bytes =
        _mm_cvtsi128_si32(_mm_packus_epi16(_mm_packs_epi32(levels, levels), _mm_setzero_si128()));
    std::memcpy(out + o, &bytes, 4);
  }
  reduce_some(in, taps, o, taps.outputs, 1, out);
}

void reduce_pixels_avx2(const std::int16_t* in, const Taps& taps, const Windows& windows,
                        int channels, std::uint8_t* out) {
  if (channels == 1) return reduce_gray_avx2(in, taps, out);
  const auto reduce = windows.pairs == 1   ? reduce_rgb_avx2<1>
                      : windows.pairs == 2 ? reduce_rgb_avx2<2>
                      : windows.pairs == 3 ? reduce_rgb_avx2<3>
                                           : reduce_rgb_avx2<0>;
  reduce(in, taps.outputs, windows, out);
}

// ---- AVX-512: the taps of a group of outputs are permuted out of 64 numbers of the row

/// Stores, for each pair of taps of a group, 32 numbers that select two of the 64 inputs for each
/// of 16 sums, then their 32 weights. Leaves `windows` alone if a group's taps are farther apart.
void prepare_windows(const Taps& taps, int channels, Windows& windows) {
  windows.pairs = 0;
  int widest = 0;
  const int pairs = (taps.most + 1) / 2;
  const int pixels = Windows::outputs(channels);
  std::int16_t* at = windows.orders_and_weights;
  for (int begin = 0, group = 0; begin < taps.outputs; begin += pixels, ++group) {
    const int end = std::min(begin + pixels, taps.outputs);
    int first = taps.first[begin], last = first;
    for (int o = begin; o < end; ++o) {
      first = std::min(first, taps.first[o]);
      last = std::max(last, taps.first[o] + taps.counts[o]);
    }
    widest = std::max(widest, (last - first) * channels);
    if (widest > Windows::kInputs) return prepare_pairs(taps, channels, windows);
    windows.bases[group] = first;
    for (int k = 0; k < pairs; ++k, at += Windows::kPair) {
      std::memset(at, 0, Windows::kPair * sizeof(std::int16_t));
      for (int o = begin; o < end; ++o) {
        const std::int16_t* weights =
            taps.weights + static_cast<std::ptrdiff_t>(o) * taps.stride + 2 * k;
        for (int c = 0; c < channels; ++c) {
          std::int16_t* sum = at + ((o - begin) * channels + c) * 2;
          const int input = (taps.first[o] - first + 2 * k) * channels + c;
          sum[0] = static_cast<std::int16_t>(input);
          sum[1] = static_cast<std::int16_t>(input + channels);
          sum[32] = weights[0];
          sum[33] = weights[1];
        }
      }
    }
  }
  windows.pairs = pairs;
  windows.grouped = true;
  windows.narrow = widest <= Windows::kInputs / 2;
}

/// kPairs: number of pairs of taps, or 0 for any. kNarrow: all taps of a group lie in 32 numbers,
/// one register instead of two.
template <int kChannels, int kPairs, bool kNarrow>
MILLRACE_AVX512 void reduce_windows_512(const std::int16_t* in, int outputs, const Windows& windows,
                                        std::uint8_t* out) {
  constexpr int kLevels = Windows::outputs(kChannels) * kChannels;  // levels of a group
  const __m512i half = _mm512_set1_epi32(kHalf);
  const std::int16_t* at = windows.orders_and_weights;
  const std::int32_t* base = windows.bases;
  const int pairs = kPairs > 0 ? kPairs : windows.pairs;
  const auto group = [&]() MILLRACE_AVX512 {
    const std::int16_t* from = in + static_cast<std::ptrdiff_t>(*base++) * kChannels;
    const __m512i low = _mm512_loadu_si512(from);
    const __m512i high = kNarrow ? low : _mm512_loadu_si512(from + 32);
    __m512i sums = half;
    for (int k = 0; k < pairs; ++k, at += Windows::kPair) {
      const __m512i order = _mm512_load_si512(at);
      const __m512i taken = kNarrow ? _mm512_permutexvar_epi16(order, low)
                                    : _mm512_permutex2var_epi16(low, order, high);
      sums = _mm512_dpwssd_epi32(sums, taken, _mm512_load_si512(at + 32));
    }
    return _mm512_cvtepi32_epi8(_mm512_srli_epi32(sums, kPixelDrop));
  };
  std::uint8_t* const end = out + outputs * kChannels;
  for (; end - out >= 16; out += kLevels)  // the next group overwrites the excess
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), group());
  if (out < end)
    _mm_mask_storeu_epi8(out, static_cast<__mmask16>((1u << (end - out)) - 1), group());
}

template <int kChannels, bool kNarrow>
void reduce_windows_512(const std::int16_t* in, const Taps& taps, const Windows& windows,
                        std::uint8_t* out) {
  const auto reduce = windows.pairs == 1   ? reduce_windows_512<kChannels, 1, kNarrow>
                      : windows.pairs == 2 ? reduce_windows_512<kChannels, 2, kNarrow>
                      : windows.pairs == 3 ? reduce_windows_512<kChannels, 3, kNarrow>
                                           : reduce_windows_512<kChannels, 0, kNarrow>;
  reduce(in, taps.outputs, windows, out);
}

void reduce_pixels_512(const std::int16_t* in, const Taps& taps, const Windows& windows,
                       int channels, std::uint8_t* out) {
  if (!windows.grouped) return reduce_pixels_avx2(in, taps, windows, channels, out);
  if (channels == 3)
    (windows.narrow ? reduce_windows_512<3, true> : reduce_windows_512<3, false>)(in, taps, windows,
                                                                                  out);
  else
    (windows.narrow ? reduce_windows_512<1, true> : reduce_windows_512<1, false>)(in, taps, windows,
                                                                                  out);
}

#endif

}  // namespace

void add_reduce_pixels_kernels([[maybe_unused]] base::Simd level, Kernels& table) {
  table.reduce_pixels = reduce_pixels;
  table.prepare_windows = no_windows;
#if MILLRACE_X86
  if (level == base::Simd::avx2) {
    table.reduce_pixels = reduce_pixels_avx2;
    table.prepare_windows = prepare_pairs;
  }
  if (level == base::Simd::avx512) {
    table.reduce_pixels = reduce_pixels_512;
    table.prepare_windows = prepare_windows;
  }
#endif
}

}  // namespace millrace::augment
