// Kernel tables, one per instruction set and type. Each is defined in its own file, such as
// conv_scalar.cpp.
#pragma once

#include "models/native/conv_kernels.h"

namespace millrace::train::native {

extern const ConvKernels<float> kScalarFloat, kAvx2Float, kAvx512Float;
extern const ConvKernels<double> kScalarDouble, kAvx2Double, kAvx512Double;

}  // namespace millrace::train::native
