// Convolution kernels for AVX-512.
#if defined(__x86_64__)

#define MILLRACE_VECTOR_BYTES 64
#define MILLRACE_VECTOR_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,fma")))
#define MILLRACE_PIXEL_TILE 4
#define MILLRACE_WEIGHT_TILE 4

#include "models/native/conv_kernels.h"
#include "models/native/conv_kernels.inl"

namespace millrace::train::native {

constinit const ConvKernels<float> kAvx512Float = make_table<float>();
constinit const ConvKernels<double> kAvx512Double = make_table<double>();

}  // namespace millrace::train::native

#endif
