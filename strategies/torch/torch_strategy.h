// What all strategies with a model have in common: the model, the optimiser and everything that
// goes on around the gradients. How a batch becomes gradients is each strategy's own.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/classifier.h"
#include "strategies/torch/amp.h"
#include "strategies/torch/cuda_library.h"
#include "strategies/torch/device_streams.h"
#include "strategies/torch/ema.h"
#include "strategies/torch/normalize.h"
#include "strategies/torch/optimizer.h"
#include "strategies/trainer/held_batches.h"
#include "strategies/trainer/step_queue.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

class TorchStrategy : public Strategy {
 public:
  void step(Batch batch, const StepContext& place, pipeline::SpanClock& spans) final;
  std::vector<FinishedStep> take_finished() final;
  void drain(pipeline::SpanClock& spans) final;
  int batches_held() const final { return streams_ ? std::max(2, options_.inflight) : 1; }
  void hold_at_most(std::size_t most, pipeline::SpanClock& spans) final {
    held_.keep_at_most(most, spans);
  }
  std::shared_ptr<pipeline::SlotMemory> slot_memory() final;
  std::int64_t last_samples() const final { return last_samples_; }
  double take_train_loss() final;
  std::optional<Evaluation> evaluate(Loader& loader) final;
  void save(const std::filesystem::path& folder) override;
  void restore(const std::filesystem::path& folder) final;
  std::string parameters_hash() override;
  std::uint64_t parameter_count() const final;
  std::uint64_t peak_device_bytes() final;
  std::string bus_id() const final { return cuda_ ? cuda_->bus_id() : std::string(); }
  std::string device() const override;

  /// The model itself, for tests and tools that set or read weights.
  Classifier& model() { return *model_; }

 protected:
  /// Throws UsageError for options that no model can follow, DeviceError for a device that is not
  /// there, DataError for weights of another model. `streams`: in place of the device's own, for
  /// tests.
  explicit TorchStrategy(const StrategyOptions& options,
                         std::unique_ptr<DeviceStreams> streams = nullptr);

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
             const StepContext& place, int replica, pipeline::SpanClock* spans) const;

  /// Sets what the random numbers of a step follow from.
  void seed_draws(Classifier& model, torch::Device device, const StepContext& place,
                  int replica) const;
  /// The rest of learn(): the loss, over `window_samples`; every tensor is `model`'s or made here.
  torch::Tensor pass(Classifier& model, const torch::Tensor& images, const torch::Tensor& targets,
                     std::int64_t window_samples, pipeline::SpanClock* spans) const;
  static Loss loss_of(const torch::Tensor& value, std::int64_t samples, const StepContext& place);

  /// Forward and backward of this process's part of the batch. Leaves the gradients of all of it,
  /// over all replicas and ranks, in those of model() when place.updates.
  virtual Loss gradients(Batch& batch, const StepContext& place, pipeline::SpanClock& spans) = 0;
  /// Makes the totals those of all ranks.
  virtual void add_up(Totals&, pipeline::SpanClock&) {}
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
  std::shared_ptr<Classifier> make_replica(torch::Device device) const;
  /// What a model learns from, on its device: images in f32, and labels or probabilities.
  struct Samples {
    torch::Tensor images, targets;
  };
  /// All of a batch. Without a queue these are views, and the batch must outlive them; else it is
  /// given back once the device has copied it, and the device's work on the step begins here.
  Samples take(Batch& batch);
  /// The same, as it was sent: images that output.normalize=device is for are levels.
  Samples send(Batch& batch);
  torch::Tensor normalized(const torch::Tensor& images) const { return normalization_(images); }
  const StrategyOptions& options() const { return options_; }
  torch::Device torch_device() const { return device_; }
  DeviceStreams* streams() { return streams_.get(); }
  /// For a strategy that takes the batch apart by itself: gives it back once the device has reached
  /// all marks, and notes that the device's work on the step begins here.
  void hold(Batch batch, std::vector<std::unique_ptr<DeviceMark>> copied);
  std::optional<CudaLibrary>& cuda() { return cuda_; }

 private:
  void update(const StepContext& place);
  class DeviceStep;
  /// What to do about a step of so many samples that has not fitted into the device's memory.
  std::string memory_hint(std::int64_t samples);
  void step_in(Batch batch, const StepContext& place, pipeline::SpanClock& spans);
  /// Takes note of a step's loss; throws RunError for one that is not a number.
  std::optional<double> read_loss(std::uint64_t step, const Totals& totals);
  /// All that a checkpoint holds besides the model's weights, by name.
  NamedTensors training_state();

  StrategyOptions options_;
  std::optional<CudaLibrary> cuda_;  ///< loaded before anything below touches torch
  torch::Device device_;
  Normalization normalization_;
  std::shared_ptr<Classifier> model_;
  std::vector<torch::Tensor> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
  Ema ema_;
  double window_seen_ = 0;              ///< samples of the open window that were there
  std::vector<FinishedStep> finished_;  ///< where the host is the device
  std::int64_t last_samples_ = 0;
  torch::Tensor train_loss_;  ///< f64: sum of losses and samples since take_train_loss()
  std::unique_ptr<DeviceStreams> streams_;  ///< null where the host is the device
  std::unique_ptr<DeviceMark> begun_;       ///< the device's work on the step under way
  InFlightBatches held_;
  StepQueue queue_;  ///< last: it is the first to go, with all that is still under way
};

}  // namespace millrace::train
