// Compiles the file that MILLRACE_BODY names once per SIMD level of x86, in namespace avx2 or
// avx512. The body uses pixels_x86.h's names of that level, OP(add_epi32) for its intrinsics,
// WHOLE(or) for those of whole vectors, and SIMD in front of functions.
#include "augment/kernels/pixels_x86.h"

#if MILLRACE_X86

namespace millrace::augment {
namespace {

namespace avx2 {
#define SIMD MILLRACE_AVX2
#define OP(name) _mm256_##name
#define WHOLE(name) _mm256_##name##_si256
#include "augment/kernels/warp_body.h"
#include MILLRACE_BODY
#undef SIMD
#undef OP
#undef WHOLE
}  // namespace avx2

namespace avx512 {
#define SIMD MILLRACE_AVX512
#define OP(name) _mm512_##name
#define WHOLE(name) _mm512_##name##_si512
#include "augment/kernels/warp_body.h"
#include MILLRACE_BODY
#undef SIMD
#undef OP
#undef WHOLE
}  // namespace avx512

}  // namespace
}  // namespace millrace::augment

#endif
