// Times of our ops beside LibTorch's, on the CPU. Free of LibTorch: its door is in
// strategies/trainer/torch_library.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace::train {

struct OpsBenchOptions {
  std::int64_t batch = 64;  ///< images
  bool cifar = false;       ///< the 3x3 convolutions of VGG and ResNet on 32x32 images as well
  int threads = 1;
  int rounds = 50;  ///< both sides run once a round; the fastest one counts
};

/// Seconds of one call.
struct OpSeconds {
  double forward = 0;
  double backward = 0;
  double step = 0;  ///< of the optimiser; 0 for a single op
};

struct OpTiming {
  std::string name;                 ///< "conv1 1->6 5x5 of 28x28"
  OpSeconds torch;                  ///< channels_last where that is faster, as `single` runs it
  std::optional<OpSeconds> native;  ///< empty where model.ops=native calls LibTorch too
  /// Largest difference between the two sides' results and gradients (for LeNets: losses of 20
  /// steps), as a part of the largest number.
  double difference = 0;
};

/// linear, conv, pool, conv + ReLU + pool, and a step of each whole LeNet. Results are compared
/// before anything is timed: RunError where they differ by more than 1e-4.
std::vector<OpTiming> bench_ops(const OpsBenchOptions& options);

}  // namespace millrace::train

/// The library's door, found by dlsym (strategies/trainer/torch_library.h).
extern "C" void millrace_bench_ops(const millrace::train::OpsBenchOptions* options,
                                   std::vector<millrace::train::OpTiming>* timings);
