// Shapes of convolutions and poolings, and which of them the native ops support. Independent of
// LibTorch and CUDA, for all kernels.
#pragma once

#include <cstdint>

/// Marks functions that threads of CUDA kernels call too.
#if defined(__CUDACC__)
#define MILLRACE_HOST_DEVICE __host__ __device__
#else
#define MILLRACE_HOST_DEVICE
#endif

namespace millrace::train::native {

/// A pair of (height, width).
struct Pair {
  std::int64_t h = 1;
  std::int64_t w = 1;
};

/// A 2-D convolution (as in deep learning: a cross-correlation). Output (oy, ox) of channel o is
///   bias[o] + sum over c, ky, kx of weight[o][c][ky][kx] *
///             input[group(o) * group_in + c][oy * stride.h + ky * dilation.h - padding.h][...]
///
/// with zeros outside of the image. The weight's layout is out x in / groups x kernel.
struct ConvGeometry {
  std::int64_t batch = 0;
  std::int64_t in = 1;  ///< number of channels
  std::int64_t out = 1;
  Pair input;
  Pair output;
  Pair kernel;
  Pair stride;
  Pair padding{0, 0};
  Pair dilation;
  std::int64_t groups = 1;

  MILLRACE_HOST_DEVICE std::int64_t group_in() const { return in / groups; }
  MILLRACE_HOST_DEVICE std::int64_t group_out() const { return out / groups; }
  /// Returns the number of elements of the weight.
  MILLRACE_HOST_DEVICE std::int64_t weights() const {
    return out * group_in() * kernel.h * kernel.w;
  }
};

/// Max pooling. Positions of a window outside of the image do not count.
struct PoolGeometry {
  std::int64_t batch = 0;
  std::int64_t channels = 1;
  Pair input;
  Pair output;
  Pair kernel;
  Pair stride;
  Pair padding{0, 0};
  Pair dilation;
};

/// Levels of images that become elements, each by a table. "Pixels": the channels of a pixel are
/// adjacent in memory (channels_last); otherwise planes are.
struct NormalizeGeometry {
  std::int64_t batch = 0;
  std::int64_t channels = 1;
  std::int64_t pixels = 1;  ///< per plane
  bool from_pixels = false;
  bool to_pixels = false;

  std::int64_t elements() const { return batch * channels * pixels; }
};

/// Fills in `output`. Throws UsageError, with the op and the numbers, for undefined shapes: kernel,
/// stride or dilation below 1, negative padding, channels that the groups do not divide, images
/// smaller than the kernel's reach. A batch of 0 is valid.
void complete(ConvGeometry& geometry);
/// Fills in `output`, with the same checks. Padding may be at most half the kernel, and every
/// window must hold a pixel.
void complete(PoolGeometry& geometry);

/// Strided view of an N x C x H x W tensor. Strides count elements and are arbitrary: planes
/// (contiguous), pixels (channels_last), or adjacent samples (batch_last, see kernels.h).
template <class T>
struct View {
  T* data = nullptr;
  std::int64_t n = 0, c = 0, h = 0, w = 0;

  T* at(std::int64_t sample, std::int64_t channel) const { return data + sample * n + channel * c; }
};

}  // namespace millrace::train::native
