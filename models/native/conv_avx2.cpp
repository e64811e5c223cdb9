// Convolution kernels for AVX2 and FMA.
#if defined(__x86_64__)

#define MILLRACE_VECTOR_BYTES 32
#define MILLRACE_VECTOR_TARGET __attribute__((target("avx2,fma")))
#define MILLRACE_PIXEL_TILE 2
#define MILLRACE_WEIGHT_TILE 2

#include "models/native/conv_kernels.h"
#include "models/native/conv_kernels.inl"

namespace millrace::train::native {

constinit const ConvKernels<float> kAvx2Float = make_table<float>();
constinit const ConvKernels<double> kAvx2Double = make_table<double>();

}  // namespace millrace::train::native

#endif
