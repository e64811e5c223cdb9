// Attributes for code that uses instructions which the compiler may not use elsewhere. Only
// functions in anonymous namespaces carry them, so that no other file can be linked to such a copy.
#pragma once

#if defined(__x86_64__)
// GCC 12 warns about the deliberately undefined vectors of its own intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#define MILLRACE_X86 1
#define MILLRACE_AVX2 __attribute__((target("avx2,fma")))
#define MILLRACE_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")))
#endif
