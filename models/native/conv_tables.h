// One table an instruction set and type; a file each, conv_scalar.cpp and its like.
#pragma once

#include "models/native/conv_kernels.h"

namespace millrace::train::native {

extern const ConvKernels<float> kScalarFloat, kAvx2Float, kAvx512Float;
extern const ConvKernels<double> kScalarDouble, kAvx2Double, kAvx512Double;

}  // namespace millrace::train::native
