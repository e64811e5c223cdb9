// Base of all strategies with a model.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/registry.h"
#include "strategies/torch/correct_counter.h"
#include "strategies/torch/cuda_library.h"
#include "strategies/torch/device.h"
#include "strategies/torch/optimizer.h"
#include "strategies/torch/step_graphs.h"
#include "strategies/trainer/device_accounting.h"
#include "strategies/trainer/strategy.h"
#include "strategies/trainer/strategy_options.h"

namespace millrace::train {

/// Base of all strategies with a model: owns the model, the optimizer and everything around the
/// gradients. Each strategy decides how a batch becomes gradients.
class TorchStrategy : public Strategy {
 public:
  void step(Batch batch, const StepContext& place, measure::SpanClock& spans) final;
  std::vector<FinishedStep> take_finished() final;
  void drain(measure::SpanClock& spans) final;
  int batches_held() const final { return streams_ ? std::max(2, inflight_) : 1; }
  void hold_at_most(std::size_t most, measure::SpanClock& spans) final {
    held_.keep_at_most(most, spans);
  }
  std::shared_ptr<pipeline::SlotMemory> slot_memory() final;
  std::int64_t last_samples() const final { return last_samples_; }
  measure::SetUp last_set_up() const final { return set_up_; }
  Submissions submissions() const final { return queue_.submissions(); }
  double take_train_loss() final;
  TrainCounts take_train_counts() final;
  std::optional<Evaluation> evaluate(Loader& loader) final;
  void on_prediction(std::function<void(const Prediction&)> each) final {
    on_prediction_ = std::move(each);
  }
  Snapshot snapshot() final;
  void restore(const std::filesystem::path& folder) final;
  std::string parameters_hash() override;
  std::uint64_t parameter_count() const final;
  std::uint64_t peak_device_bytes() const final;
  std::string bus_id() const final { return cuda_ ? cuda_->bus_id() : std::string(); }
  std::string device() const override;

  /// Returns the model, for tests and tools that set or read weights.
  Classifier& model() { return *model_; }
  /// Returns the tensors on the device that a step may change, for stand-ins of CUDA graphs:
  /// weights, buffers, averages, the optimizer's state and the loss scale.
  std::vector<torch::Tensor> device_state();

 protected:
  /// Throws UsageError for options that no model can follow, DeviceError for a missing device,
  /// DataError for weights of another model. `streams` replace the device's own, for tests.
  explicit TorchStrategy(const StrategyOptions& options,
                         std::unique_ptr<DeviceStreams> streams = nullptr);

  /// Result of one replica's forward pass.
  struct Loss {
    torch::Tensor value;       ///< sum of losses / divisor, on the device
    double divisor = 1;        ///< 1, or the number of samples
    std::int64_t samples = 0;  ///< samples of this replica
    bool updated = false;      ///< the optimizer's step is done, and the averages'
  };
  /// Sums of a step over all ranks.
  struct Totals {
    double loss = 0;  ///< sum of the samples' losses; not yet known on a CUDA device
    double samples = 0;
    double asked_to_stop = 0;  ///< number of ranks asked to stop
  };

  /// Adds the gradients of (sum of losses / place.window_samples) to those of `model`. Enters
  /// forward and backward on `spans`, if there is one. `replica`: replica or rank, which draws its
  /// own random numbers. Adds the correct answers to `counter`, if there is one.
  Loss learn(Classifier& model, const torch::Tensor& images, const torch::Tensor& targets,
             const StepContext& place, int replica, CorrectCounter* counter,
             measure::SpanClock* spans) const;

  /// Seeds the random numbers of a step.
  void seed_draws(Classifier& model, torch::Device device, const StepContext& place,
                  int replica) const;
  /// Computes the loss over `window_samples`, the rest of learn(). Every tensor belongs to `model`
  /// or is made here.
  torch::Tensor pass(Classifier& model, const torch::Tensor& images, const torch::Tensor& targets,
                     std::int64_t window_samples, CorrectCounter* counter,
                     measure::SpanClock* spans) const;
  static Loss loss_of(const torch::Tensor& value, std::int64_t samples, const StepContext& place);

  // A step whose optimizer belongs to it, for CUDA graphs. Its tensors are the model's, the
  // optimizer's, the averages' and those made here, and its host code changes nothing else.

  /// Runs pass() over a window of one batch without failures, then what update() does. Leaves no
  /// gradients.
  torch::Tensor pass_and_update(const torch::Tensor& images, const torch::Tensor& targets,
                                std::int64_t window_samples, measure::SpanClock* spans);
  /// Returns whether a step does what all later ones do: the first averages are copies.
  bool is_settled() const { return !ema_ || ema_.begun(); }
  /// Sends a batch that `graphs` takes, and the learning rate if the optimizer's step belongs to
  /// them, and runs `step`, of which pass() or pass_and_update() is a part, eagerly or as a replay.
  /// Returns the loss.
  torch::Tensor run_graphed(StepGraphs& graphs, Batch& batch, const StepContext& place,
                            measure::SpanClock& spans, const StepGraphs::Step& step);

  /// Runs forward and backward on this process's part of the batch. If place.updates, leaves the
  /// gradients of the whole batch, over all replicas and ranks, in model().
  virtual Loss gradients(Batch& batch, const StepContext& place, measure::SpanClock& spans) = 0;
  /// Sums the totals over all ranks.
  virtual void add_up(Totals&, measure::SpanClock&) {}
  /// Sums any vector over all ranks.
  virtual void add_up(torch::Tensor&) {}
  /// Reports progress between two collectives.
  virtual void alive() {}
  /// Copies the first rank's buffers (running statistics of batch normalisation) to all.
  virtual void share_buffers() {}
  /// Prepares for the next window of gradients.
  virtual void clear_gradients();
  virtual int rank() const { return 0; }

  /// Returns a new model on the device in training mode, initialised from torch's current
  /// generator.
  std::shared_ptr<Classifier> make_replica(torch::Device device);
  /// Returns the whole batch, images in f32. On the CPU these are views, and the batch must outlive
  /// them. Otherwise the batch is given back once the device has copied it, and the device's work
  /// on the step begins here.
  Samples take(Batch& batch);
  /// Sends the batch into memory of the size of block_of(batch), as StepGraphs::Send does, without
  /// normalising: with output.normalize=device images are levels. Devices only.
  Samples send_into(Batch& batch, torch::Tensor& block, DeviceMark* read);
  torch::Tensor normalized(const torch::Tensor& images) const { return normalization_(images); }
  const StrategyOptions& options() const { return options_; }
  const InputForm& form() const { return form_; }
  torch::Device torch_device() const { return device_; }
  /// Returns the counter of the first replica on this process.
  CorrectCounter& counter() { return counters_.front(); }
  /// Takes losses of a further replica, and returns its counter.
  CorrectCounter& add_replica(torch::Device device) {
    scaler_.add_device(device);
    return counters_.emplace_back(device);
  }
  DeviceStreams* streams() { return streams_.get(); }
  /// Gives a batch back once the device has reached all marks, for strategies that split the batch
  /// themselves. The device's work on the step begins here.
  void hold(Batch batch, std::vector<OwnedMark> copied);
  std::optional<CudaLibrary>& cuda() { return cuda_; }

 private:
  void update(const StepContext& place);
  /// Sends the step's learning rate to where pass_and_update() reads it.
  void send_rate(const StepContext& place);
  double rate_of(const StepContext& place) const;
  /// Multiplies the gradients by `scale` and lets the optimizer, the loss scale and the averages
  /// act on them.
  void apply_gradients(const LearningRate& lr, double scale);
  /// Gives the batch back once the copies so far are done.
  void hold_until_copied(Batch& batch);
  /// Returns the model's logits, on its device.
  torch::Tensor answers(const torch::Tensor& images);
  /// Adds up the answers of a device, some batches behind it: neither waits for the other at each
  /// batch.
  void evaluate_behind(Loader& loader, Evaluation& sum);
  class DeviceStep;
  /// Returns advice for a step of `samples` samples that exceeded the device's memory.
  std::string memory_hint(std::int64_t samples);
  void step_in(Batch batch, const StepContext& place, measure::SpanClock& spans);
  /// Records a step's loss. Throws RunError if it is not a number.
  std::optional<double> read_loss(std::uint64_t step, const Totals& totals);
  /// Returns the state of a checkpoint except for the model's weights, by name.
  NamedTensors training_state();
  /// A checkpoint's values, by file.
  struct State {
    TensorValues weights, averages, training;
  };

  const StrategyOptions options_;
  // The recipe's values that a step reads.
  const std::string amp_;
  const double label_smoothing_, clip_;
  const bool device_parts_;
  const std::uint64_t seed_;
  const int inflight_;
  std::optional<CudaLibrary> cuda_;  ///< loaded before any member below uses torch
  torch::Device device_;
  InputForm form_;  ///< complete once the model is made
  std::shared_ptr<Classifier> model_;
  Normalization normalization_;
  std::vector<torch::Tensor> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
  Ema ema_;
  double window_seen_ = 0;              ///< samples of the open window that could be loaded
  std::vector<FinishedStep> finished_;  ///< on the CPU
  std::int64_t last_samples_ = 0;
  measure::SetUp set_up_ = measure::SetUp::none;  ///< by the last step
  /// Kinds of steps so far: samples, classes, and whether the window opened and closed.
  std::set<std::tuple<std::int64_t, std::int64_t, bool, bool>> kinds_;
  torch::Tensor train_loss_;     ///< f64: sums of losses and samples since take_train_loss()
  std::shared_ptr<State> copy_;  ///< of the last snapshot
  std::function<void(const Prediction&)> on_prediction_;
  std::deque<CorrectCounter> counters_;     ///< by replica, on its device
  std::int64_t counted_ = 0;                ///< samples that the counters have seen
  std::unique_ptr<DeviceStreams> streams_;  ///< null on the CPU
  MarkRing ring_;
  StagedNumbers rates_;         ///< learning rates on their way
  torch::Tensor rate_;          ///< learning rate on the device; undefined until send_rate()
  StepMarks* marks_ = nullptr;  ///< of the current step; null on the CPU
  InFlightBatches held_;
  StepQueue queue_;  ///< last member: destroyed first, with all steps in flight
};

}  // namespace millrace::train
