// What all strategies with a model have in common: the model, the optimiser and everything that
// goes on around the gradients. How a batch becomes gradients is each strategy's own.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/classifier.h"
#include "strategies/amp.h"
#include "strategies/cuda_library.h"
#include "strategies/ema.h"
#include "strategies/optimizer.h"
#include "strategies/strategy.h"

namespace millrace {

class TorchStrategy : public Strategy {
 public:
  void step(Batch batch, const StepPlace& place, SpanClock& spans) final;
  std::optional<double> last_loss() final { return last_loss_; }
  std::int64_t last_samples() const final { return last_samples_; }
  double take_train_loss() final;
  std::optional<Evaluation> evaluate(Loader& loader) final;
  void save(const std::filesystem::path& folder) override;
  void restore(const std::filesystem::path& folder) final;
  std::string parameters_hash() override;
  std::uint64_t parameter_count() const final;
  std::uint64_t peak_device_bytes() final;
  std::string device() const override;

  /// The model itself, for tests and tools that set or read weights.
  Classifier& model() { return *model_; }

 protected:
  /// Throws UsageError for options that no model can follow, DeviceError for a device that is not
  /// there, DataError for weights of another model.
  explicit TorchStrategy(const StrategyOptions& options);

  /// What a forward pass has found, of one replica.
  struct Loss {
    torch::Tensor value;       ///< on the device; Σ losses / divisor
    double divisor = 1;        ///< 1, or the number of samples
    std::int64_t samples = 0;  ///< of this replica
  };
  /// What a step adds up over all ranks.
  struct Totals {
    double loss = 0;  ///< sum of the samples' losses; on a CUDA device not known yet
    double samples = 0;
    double asked_to_stop = 0;  ///< ranks
  };

  /// Adds to the gradients of `model` those of Σ losses / place.window_samples. Enters forward and
  /// backward on `spans`, if there is one. `replica`: of which replica or rank; it draws its own.
  Loss learn(Classifier& model, const torch::Tensor& images, const torch::Tensor& targets,
             const StepPlace& place, int replica, SpanClock* spans) const;

  /// Forward and backward of this process's part of the batch. Leaves the gradients of all of it,
  /// over all replicas and ranks, in those of model() when place.updates.
  virtual Loss gradients(Batch& batch, const StepPlace& place, SpanClock& spans) = 0;
  /// Makes the totals those of all ranks.
  virtual void add_up(Totals&, SpanClock&) {}
  /// The same for any vector of sums.
  virtual void add_up(torch::Tensor&) {}
  /// A sign of life between two collectives.
  virtual void alive() {}
  /// Gives every rank the buffers of the first (running statistics of batch normalisation).
  virtual void share_buffers() {}
  /// Makes ready for the next window of gradients.
  virtual void clear_gradients();
  virtual int rank() const { return 0; }

  /// A new model on the device, in training, initialised from torch's current generator.
  std::shared_ptr<Classifier> make_replica() const;
  torch::Tensor to_device(const torch::Tensor& host) const;
  const StrategyOptions& options() const { return options_; }
  torch::Device torch_device() const { return device_; }
  std::optional<CudaLibrary>& cuda() { return cuda_; }

 private:
  void update(const StepPlace& place);
  void read_loss(const StepPlace& place, const Totals& totals);
  /// All that a checkpoint holds besides the model's weights, by name.
  NamedTensors training_state();

  StrategyOptions options_;
  std::optional<CudaLibrary> cuda_;  ///< loaded before anything below touches torch
  torch::Device device_;
  std::shared_ptr<Classifier> model_;
  std::vector<torch::Tensor> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
  Ema ema_;
  torch::Tensor host_loss_;  ///< where the device leaves a step's loss; pinned for CUDA
  double window_seen_ = 0;   ///< samples of the open window that were there
  std::optional<double> last_loss_;
  std::int64_t last_samples_ = 0;
  torch::Tensor train_loss_;  ///< f64: sum of losses and samples since take_train_loss()
};

}  // namespace millrace
