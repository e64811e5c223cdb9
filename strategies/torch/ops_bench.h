// Compares the native ops' speed with LibTorch's on the CPU. Independent of LibTorch: the entry
// point is in strategies/trainer/torch_library.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace::train {

struct OpsBenchOptions {
  std::int64_t batch = 64;  ///< images per batch
  bool cifar = false;       ///< also the 3x3 convolutions of VGG and ResNet on 32x32 images
  int threads = 1;
  int rounds = 50;  ///< each round runs both sides once; the fastest counts
};

/// Seconds per call.
struct OpSeconds {
  double forward = 0;
  double backward = 0;
  double step = 0;  ///< the optimiser's step; 0 for a single op
};

struct OpTiming {
  std::string name;                 ///< "conv1 1->6 5x5 of 28x28"
  OpSeconds torch;                  ///< in channels_last where that is faster, as `single` runs it
  std::optional<OpSeconds> native;  ///< empty if model.ops=native calls LibTorch too
  /// Largest difference between the two sides' results and gradients (for LeNets: losses of 20
  /// steps), relative to the largest number.
  double difference = 0;
};

/// Times linear, conv, pool, conv + ReLU + pool, and one step of each LeNet. Compares results first
/// and throws RunError if they differ by more than 1e-4.
std::vector<OpTiming> bench_ops(const OpsBenchOptions& options);

}  // namespace millrace::train

/// Entry point of the library, found by dlsym (strategies/trainer/torch_library.h).
extern "C" void millrace_bench_ops(const millrace::train::OpsBenchOptions* options,
                                   std::vector<millrace::train::OpTiming>* timings);
