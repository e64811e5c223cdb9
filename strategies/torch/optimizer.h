// Optimizers, and mixed precision.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/private_api.h"
#include "millrace/recipe.h"
#include "models/weights.h"

namespace millrace::train {

/// Learning rate of a step: a number, or a tensor (f32, on the parameters' device) whose value a
/// CUDA graph reads at each replay.
struct LearningRate {
  LearningRate(double number) : value(number) {}  // NOLINT: a number is a learning rate
  explicit LearningRate(torch::Tensor there) : tensor(std::move(there)) {}

  double value = 0;
  torch::Tensor tensor;  ///< undefined: `value` counts
};

/// Updates all parameters in one fused call; torch::optim visits them one by one.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Applies the parameters' gradients, all of which must exist. Changes nothing if `found_inf` is
  /// defined and not 0 (mixed precision found a gradient that is not finite).
  virtual void step(const LearningRate& lr, const torch::Tensor& found_inf) = 0;
  /// Returns the state kept between steps, by name. The tensors are the optimizer's own.
  virtual NamedTensors state() = 0;
};

/// Makes the recipe's train.optimizer: sgd (momentum after Sutskever et al., 2013), adam (Kingma
/// and Ba, 2015) or adamw (Loshchilov and Hutter, 2019), as torch.optim defines them. `parameters`
/// are named as in the model. Throws UsageError for contradictory keys.
MILLRACE_PRIVATE_API std::unique_ptr<Optimizer> make_optimizer(const Recipe& recipe,
                                                               NamedTensors parameters);

// Exponential moving average of a model's weights. If kept, evaluations use it.

/// Equivalent of torchvision's ExponentialMovingAverage with buffers. The first update copies the
/// values; every later one sets average = decay * average + (1 - decay) * value for parameters and
/// floating-point buffers. Other buffers are copied.
class Ema {
 public:
  /// Starts from the model's values. Does nothing if `decay` is 0.
  Ema(const torch::nn::Module& model, double decay);

  explicit operator bool() const { return decay_ > 0; }
  void update() {
    average();
    count_update();
  }
  // The parts of update(): work on tensors, which a CUDA graph may repeat, and the host's count.
  void average();
  void count_update() { updates_.add_(1); }
  /// Returns whether there has been an update.
  bool begun() const { return updates_.item<std::int64_t>() > 0; }
  /// Exchanges the model's values with the averages. A second call undoes it.
  void swap();
  /// Returns the averages under the model's names.
  NamedTensors state() const { return averages_; }
  /// Returns the number of updates, for a checkpoint.
  NamedTensors count() const;

 private:
  double decay_;
  NamedTensors values_;    ///< the model's own tensors
  NamedTensors averages_;  ///< in the same order as values_
  torch::Tensor updates_;  ///< undefined if nothing is averaged
};

/// Puts the averages into the model for its lifetime.
class EmaInPlace {
 public:
  explicit EmaInPlace(Ema& ema) : ema_(ema) { ema_.swap(); }
  ~EmaInPlace() { ema_.swap(); }
  EmaInPlace(const EmaInPlace&) = delete;
  EmaInPlace& operator=(const EmaInPlace&) = delete;

 private:
  Ema& ema_;
};

// Mixed precision: runs the forward pass's ops in bf16 or f16 where that is safe, and scales the
// loss so that small gradients do not vanish in f16 (Micikevicius et al., 2018).

/// Enables autocast on the calling thread for its lifetime. The backward pass belongs outside.
class Autocast {
 public:
  /// `amp` is off, bf16 or f16.
  Autocast(const std::string& amp, torch::Device device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
  c10::DeviceType device_;
  bool before_ = false;
};

/// Equivalent of torch.amp.GradScaler with its defaults: starts at 65536, halves after a step with
/// gradients that are not finite (and skips that step), doubles after 2000 good steps.
class GradScaler {
 public:
  /// Scales only if `enabled` (f16 only).
  GradScaler(bool enabled, torch::Device device);
  /// Lets losses of further replicas lie on `device`.
  void add_device(torch::Device device);

  /// Returns the gradient to start the backward pass of `loss` with: `weight`, times the scale.
  /// Multiplying the loss instead would take two more kernels, and a weight of 1 needs none. The
  /// tensor must not be written to.
  torch::Tensor root_gradient(const torch::Tensor& loss, double weight) const;
  /// Divides the gradients by the scale. Returns a tensor that says whether a gradient was not
  /// finite; undefined if the scaler is off.
  torch::Tensor unscale(const std::vector<torch::Tensor>& gradients);
  void update(const torch::Tensor& found_inf);
  /// Returns the scale and its age, for a checkpoint.
  NamedTensors state();

 private:
  std::vector<torch::Tensor> ones_;  ///< by device; graphs read them
  torch::Tensor scale_, growth_;     ///< undefined if the scaler is off
};

}  // namespace millrace::train
