// Options of the models, as far as they are known without LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/simd.h"

namespace millrace::train {

/// Choices that a recipe has about a model, besides its name. Plain data, independent of LibTorch:
/// it travels with a strategy's options.
struct ModelOptions {
  /// Form of a ResNet's stem and a VGG's head: imagenet (as in torchvision) or cifar (32x32
  /// images). Other models have one form.
  std::string variant = "imagenet";
  double dropout = -1;  ///< probability; negative: as in the model's source
  /// default (as in the model's source), kaiming or xavier (models/layers.h).
  std::string init = "default";
  /// Native convolutions and poolings (models/layers.h); sequential models only.
  bool native_ops = false;
};

// Resolves model.ops=auto to LibTorch's or the native convolutions and poolings, for a whole model.
// The choice depends on the recipe and the SIMD level alone: nothing is timed when a run starts,
// and all ranks agree. Independent of LibTorch.

/// Inputs of the choice.
struct OpsQuestion {
  std::string_view model;                   ///< model.name
  std::int64_t samples = 0;                 ///< per batch, for the largest rank or replica
  std::string_view device = "cpu";          ///< train.device
  std::string_view amp = "off";             ///< train.amp
  std::string_view channels_last = "auto";  ///< train.channels_last
  base::Simd simd = base::Simd::scalar;
};

/// Smallest number of samples per batch from which the native ops make the whole training step
/// faster.
struct NativeFrom {
  std::string_view model;
  base::Simd simd;
  std::int64_t samples;
};

// Measured by `millrace bench ops` (docs/reference/native-ops.md has all figures): the smallest
// power of two from which the step with our own ops is faster by 1.3 or more.
//                                      LibTorch's time / ours at a batch of 2, 4, 8, 16, 32
inline constexpr NativeFrom kNativeFrom[] = {
    {"lenet5", base::Simd::avx512, 8},         // 0.9, 1.2, 1.4, 2.7, 2.8
    {"lenet5_plain", base::Simd::avx512, 4},   // 1.1, 1.4, 1.5, 2.3, 2.6
    {"lenet5_cifar", base::Simd::avx512, 16},  // 0.5, 0.9, 1.0, 2.3, 2.6
    {"lenet5", base::Simd::avx2, 4},           // 1.2, 1.5, 1.9, 2.4
    {"lenet5_plain", base::Simd::avx2, 2},     // 1.3, 1.6, 1.9, 2.4
    {"lenet5_cifar", base::Simd::avx2, 16},    // 0.6, 1.0, 1.3, 2.4
    {"simple_conv", base::Simd::avx512, 2},    // 1.3, 1.3, 1.3, 1.5, 1.4
    {"simple_conv", base::Simd::avx2, 4},      // 1.2, 1.3, 1.3, 1.4, 1.4
};

/// Returns whether the native ops make the question's model faster. Under AMP they would stay f32,
/// and channels_last works with LibTorch's ops only: both choose LibTorch's.
constexpr bool prefers_native_ops(const OpsQuestion& question) {
  if (question.device != "cpu" || question.amp != "off" || question.channels_last == "on")
    return false;
  for (const NativeFrom& row : kNativeFrom)
    if (row.model == question.model && row.simd == question.simd)
      return question.samples >= row.samples;
  return false;
}

}  // namespace millrace::train
