// Computes positions by a map with a denominator: double precision with one rounding per operation,
// then fixed point. No level may fuse a multiplication with an addition (determinism contract).
#include <algorithm>

#include "augment/kernels/kernels.h"
#include "augment/kernels/targets.h"
#include "millrace/math.hpp"

namespace millrace::augment {
namespace {

constexpr double kFar = 1 << 30;

/// Constants of a row: numerators and denominator are linear in the output column.
struct ProjectedRow {
  double a_0, a_x, b_0, b_x;  ///< moved centre of column x: a = a_0 + a_x x, exact
  double one;                 ///< 1 in fixed point
  std::int32_t half;

  ProjectedRow(const Projection& p, int y)
      : a_0(p.move.xy * y + p.move.x0 + 0.5),
        a_x(p.move.xx),
        b_0(p.move.yy * y + p.move.y0 + 0.5),
        b_x(p.move.yx),
        one(1 << p.bits),
        half(p.half_pixel_in ? 1 << (p.bits - 1) : 0) {}
};

/// Returns pixels in fixed point; not-a-number counts as far out.
std::int32_t fixed_position(double value, const ProjectedRow& row) {
  double scaled = value * row.one;
  scaled = scaled < kFar ? scaled : kFar;
  scaled = scaled > -kFar ? scaled : -kFar;
  const auto position = static_cast<std::int32_t>(floor_to_whole(scaled + 0.5)) - row.half;
  return std::max(position, -(1 << 30));
}

void project(const Projection& p, int y, int begin, int end, std::int32_t* u, std::int32_t* v) {
  const ProjectedRow row(p, y);
  const auto& m = p.map;
  for (int x = begin; x < end; ++x) {
    const double a = row.a_0 + row.a_x * x;
    const double b = row.b_0 + row.b_x * x;
    const double w = m[6] * a + m[7] * b + m[8];
    u[x] = fixed_position((m[0] * a + m[1] * b + m[2]) / w, row);
    v[x] = fixed_position((m[3] * a + m[4] * b + m[5]) / w, row);
  }
}

#if MILLRACE_X86

MILLRACE_AVX2 inline __m256d linear(const double* m, __m256d a, __m256d b) {
  return _mm256_add_pd(
      _mm256_add_pd(_mm256_mul_pd(_mm256_set1_pd(m[0]), a), _mm256_mul_pd(_mm256_set1_pd(m[1]), b)),
      _mm256_set1_pd(m[2]));
}

MILLRACE_AVX2 inline __m128i fixed_positions(__m256d values, const ProjectedRow& row) {
  // min and max return their second operand if the first is not a number.
  __m256d scaled = _mm256_mul_pd(values, _mm256_set1_pd(row.one));
  scaled = _mm256_min_pd(scaled, _mm256_set1_pd(kFar));
  scaled = _mm256_max_pd(scaled, _mm256_set1_pd(-kFar));
  const __m128i fixed =
      _mm256_cvttpd_epi32(_mm256_floor_pd(_mm256_add_pd(scaled, _mm256_set1_pd(0.5))));
  return _mm_max_epi32(_mm_sub_epi32(fixed, _mm_set1_epi32(row.half)), _mm_set1_epi32(-(1 << 30)));
}

MILLRACE_AVX2 void project_avx2(const Projection& p, int y, int begin, int end, std::int32_t* u,
                                std::int32_t* v) {
  const ProjectedRow row(p, y);
  const double* m = p.map.data();
  for (int x = begin; x < end; x += 4) {
    const __m256d columns = _mm256_add_pd(_mm256_set1_pd(x), _mm256_setr_pd(0, 1, 2, 3));
    const __m256d a =
        _mm256_add_pd(_mm256_set1_pd(row.a_0), _mm256_mul_pd(_mm256_set1_pd(row.a_x), columns));
    const __m256d b =
        _mm256_add_pd(_mm256_set1_pd(row.b_0), _mm256_mul_pd(_mm256_set1_pd(row.b_x), columns));
    const __m256d w = linear(m + 6, a, b);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(u + x),
                     fixed_positions(_mm256_div_pd(linear(m, a, b), w), row));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(v + x),
                     fixed_positions(_mm256_div_pd(linear(m + 3, a, b), w), row));
  }
}

MILLRACE_AVX512 inline __m512d linear(const double* m, __m512d a, __m512d b) {
  return _mm512_add_pd(
      _mm512_add_pd(_mm512_mul_pd(_mm512_set1_pd(m[0]), a), _mm512_mul_pd(_mm512_set1_pd(m[1]), b)),
      _mm512_set1_pd(m[2]));
}

MILLRACE_AVX512 inline __m256i fixed_positions(__m512d values, const ProjectedRow& row) {
  __m512d scaled = _mm512_mul_pd(values, _mm512_set1_pd(row.one));
  scaled = _mm512_min_pd(scaled, _mm512_set1_pd(kFar));
  scaled = _mm512_max_pd(scaled, _mm512_set1_pd(-kFar));
  const __m256i fixed =
      _mm512_cvttpd_epi32(_mm512_floor_pd(_mm512_add_pd(scaled, _mm512_set1_pd(0.5))));
  return _mm256_max_epi32(_mm256_sub_epi32(fixed, _mm256_set1_epi32(row.half)),
                          _mm256_set1_epi32(-(1 << 30)));
}

MILLRACE_AVX512 void project_512(const Projection& p, int y, int begin, int end, std::int32_t* u,
                                 std::int32_t* v) {
  const ProjectedRow row(p, y);
  const double* m = p.map.data();
  for (int x = begin; x < end; x += 8) {
    const __m512d columns =
        _mm512_add_pd(_mm512_set1_pd(x), _mm512_setr_pd(0, 1, 2, 3, 4, 5, 6, 7));
    const __m512d a =
        _mm512_add_pd(_mm512_set1_pd(row.a_0), _mm512_mul_pd(_mm512_set1_pd(row.a_x), columns));
    const __m512d b =
        _mm512_add_pd(_mm512_set1_pd(row.b_0), _mm512_mul_pd(_mm512_set1_pd(row.b_x), columns));
    const __m512d w = linear(m + 6, a, b);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(u + x),
                        fixed_positions(_mm512_div_pd(linear(m, a, b), w), row));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(v + x),
                        fixed_positions(_mm512_div_pd(linear(m + 3, a, b), w), row));
  }
}

#endif

}  // namespace

void add_position_kernels([[maybe_unused]] base::Simd level, Kernels& table) {
  table.project = project;
#if MILLRACE_X86
  if (level == base::Simd::avx2) table.project = project_avx2;
  if (level == base::Simd::avx512) table.project = project_512;
#endif
}

}  // namespace millrace::augment
