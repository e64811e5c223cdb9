// Code for instructions that the compiler was not told to use everywhere. Only functions of an
// anonymous namespace carry these marks, so that no other file can be given such a copy of them.
#pragma once

#if defined(__x86_64__)
// GCC 12 takes the deliberately undefined vectors of its own intrinsics for mistakes.
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
