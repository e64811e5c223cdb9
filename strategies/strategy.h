// What the trainer asks of a strategy: steps, evaluation, weights. Free of LibTorch, so that the
// loop and its clock are tested without it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/loader.h"
#include "pipeline/spans.h"

namespace millrace {

/// Exact sums over an evaluation (no padding, nothing dropped).
struct Evaluation {
  std::uint64_t images = 0;
  double loss_sum = 0;     ///< of the samples' cross-entropies, in nats
  std::uint64_t top5 = 0;  ///< samples whose label is among the 5 largest logits
  std::vector<std::vector<std::uint64_t>> confusion;  ///< [label][prediction]
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  /// One optimiser step on one batch. Gives the batch back as soon as it is no longer read. Enters
  /// h2d, forward, backward, step and device_wait on `spans` as it goes through them and leaves
  /// it in the last of them.
  virtual void step(Batch batch, SpanClock& spans) = 0;
  /// Mean loss of the last step, where reading it waits for nothing; else empty.
  virtual std::optional<double> last_loss() = 0;
  /// Mean loss over the samples since the last call; NaN where there is no model.
  virtual double take_train_loss() = 0;
  /// Runs the model over every batch of `loader`. Empty where there is no model.
  virtual std::optional<Evaluation> evaluate(Loader& loader) = 0;
  /// Writes the weights as safetensors; throws RunError when the file cannot be completed.
  virtual void save(const std::filesystem::path& file) = 0;
  /// xxh3 of all parameters and buffers in the order of their names, 16 hex digits.
  virtual std::string parameters_hash() = 0;
  /// Number of trainable parameters.
  virtual std::uint64_t parameter_count() const = 0;
  /// Most memory the device held so far; 0 on the CPU.
  virtual std::uint64_t peak_device_bytes() = 0;
  /// What runs the steps, in words: "cpu (1 thread)", "NVIDIA H200", "simulated (1.1 ms a step)".
  virtual std::string device() const = 0;
};

/// Everything a strategy with a model needs to know. Plain data: crosses into the LibTorch library.
struct StrategyOptions {
  std::string model = "lenet5";
  std::string weights;  ///< safetensors file to start from; empty: initialise
  bool native_ops = false;
  int classes = 10;
  int channels = 1;            ///< of a sample
  Size input;                  ///< of a sample
  DType dtype = DType::f32;    ///< of the batches; models take f32
  std::string device = "cpu";  ///< cpu, cuda, cuda:N
  int threads = 1;
  std::uint64_t seed = 0;
  std::string optimizer = "sgd";
  double lr = 0.01;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

}  // namespace millrace
