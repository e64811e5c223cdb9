// Compares the native ops' speed with LibTorch's, layer by layer and step by step: the interface of
// libmillrace_bench.so, independent of LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/private_api.h"

namespace millrace::train {

struct OpsBenchOptions {
  std::vector<std::string> models;  ///< sequential ones (models/descriptions.cpp)
  std::string device = "cpu";       ///< cpu, cuda or cuda:N
  std::int64_t batch = 64;          ///< images per batch
  bool cifar = false;               ///< also the 3x3 convolutions of VGG and ResNet on 32x32 images
  int threads = 1;
  int rounds = 50;  ///< each round runs both sides once; the fastest counts
};

/// Seconds per call.
struct OpSeconds {
  double forward = 0;
  double backward = 0;
  double step = 0;  ///< the optimizer's step; 0 for a single op
};

struct OpTiming {
  std::string model;  ///< "lenet5"; empty for --cifar's convolutions
  std::string name;   ///< "conv1 1->6 5x5 of 28x28", or "step"
  OpSeconds torch{};  ///< in channels_last where that is faster, as `single` runs it
  std::optional<OpSeconds> native{};  ///< empty if model.ops=native calls LibTorch too
  /// Largest difference between the two sides' results and gradients (for steps: losses of 20
  /// steps), relative to the largest number.
  double difference = 0;
};

}  // namespace millrace::train

/// Times, for each model, its layers and one training step. Compares results first and throws
/// RunError if they differ by more than 1e-4. Throws UsageError for a model whose layers do not
/// follow one another, DeviceError for a missing device. Found by train::torch_function().
extern "C" MILLRACE_PRIVATE_API void millrace_bench_ops(
    const millrace::train::OpsBenchOptions* options,
    std::vector<millrace::train::OpTiming>* timings);
