// Convolution kernels for every processor, with 16-byte vectors.
#define MILLRACE_VECTOR_BYTES 16
#define MILLRACE_VECTOR_TARGET
#define MILLRACE_PIXEL_TILE 2
#define MILLRACE_WEIGHT_TILE 2

#include "models/native/conv_kernels.h"
#include "models/native/conv_kernels.inl"

namespace millrace::train::native {

constinit const ConvKernels<float> kScalarFloat = make_table<float>();
constinit const ConvKernels<double> kScalarDouble = make_table<double>();

}  // namespace millrace::train::native
