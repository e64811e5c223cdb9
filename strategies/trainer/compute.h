// Steps and evaluations of a model on its device: the part of a strategy that computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "measure/spans.h"
#include "measure/step_record.h"
#include "millrace/loader.h"
#include "strategies/trainer/evaluation.h"

namespace millrace::train {

/// A step's facts that the loop knows and a strategy needs.
struct StepContext {
  std::uint64_t step = 0;  ///< number of batches before it, over all epochs
  /// Samples of all batches that share an optimizer step (train.accumulate), over all ranks.
  std::int64_t window_samples = 0;
  bool opens = true;    ///< first of those batches
  bool updates = true;  ///< last of those batches: the optimizer acts after it
  double lr = 0.01;     ///< learning rate of that optimizer step
  bool stop = false;    ///< this process was asked to stop
};

/// A step's parts by the device's own events, in ticks.
struct DeviceParts {
  base::Clock::Ticks forward = 0;
  base::Clock::Ticks backward = 0;
  base::Clock::Ticks graph = 0;  ///< forward and backward as one CUDA graph, which has no events
  base::Clock::Ticks step = 0;   ///< the optimizer's, and the copy of the loss

  DeviceParts& operator+=(const DeviceParts& other) {
    forward += other.forward;
    backward += other.backward;
    graph += other.graph;
    step += other.step;
    return *this;
  }
};

/// A step that the device has finished.
struct FinishedStep {
  std::uint64_t step = 0;        ///< as StepContext::step
  std::optional<double> loss;    ///< mean over all ranks' samples; empty without a model or samples
  base::Clock::Ticks begin = 0;  ///< when the device began it, on the host's clock; 0 on the CPU
  base::Clock::Ticks end = 0;    ///< when the device ended it; 0 on the CPU
  std::optional<DeviceParts> parts = {};  ///< they add up to end - begin; empty if not measured
};

class Compute {
 public:
  virtual ~Compute() = default;

  /// Runs forward and backward on one batch, which may be empty (count() is 0), then the
  /// optimizer's step if the place says so. Gives the batch back as soon as it is no longer read.
  /// Enters h2d, forward, backward, step, peer_wait and device_wait on `spans` as it goes, and
  /// leaves it in the last of them. With the sync clock the device has then finished; with the
  /// async one up to train.inflight steps, including this one, may be in flight. Throws RunError
  /// with the step if a loss is not a number.
  virtual void step(Batch batch, const StepContext& place, measure::SpanClock& spans) = 0;
  /// Returns the steps finished since the last call, in order, without waiting.
  virtual std::vector<FinishedStep> take_finished() = 0;
  /// Waits in device_wait until the device has finished all steps.
  virtual void drain(measure::SpanClock&) {}
  /// Returns whether to stop before the next step. Several ranks agree on it, one step after one of
  /// them was asked (StepContext::stop).
  virtual bool stopping(bool asked) const { return asked; }

  /// Returns the most batches that it holds at a time; LoaderOptions::held must match.
  virtual int batches_held() const { return 1; }
  /// Gives back batches that the device has copied. If more than `most` are left, waits for them in
  /// device_wait. Call it before asking for a batch.
  virtual void hold_at_most(std::size_t /*most*/, measure::SpanClock&) {}
  /// Returns the memory for batches; null: ordinary host memory.
  virtual std::shared_ptr<pipeline::SlotMemory> slot_memory() { return nullptr; }

  /// Returns the last step's samples on all ranks.
  virtual std::int64_t last_samples() const = 0;
  /// Returns what the last step has set up.
  virtual measure::SetUp last_set_up() const { return measure::SetUp::none; }
  /// Returns the mean loss over the samples since the last call; NaN without a model.
  virtual double take_train_loss() = 0;
  /// Returns the counts since the last call, over all ranks. The device must have finished all
  /// steps. All ranks must call it in the same order.
  virtual TrainCounts take_train_counts() { return {}; }

  /// Runs the model over every batch of `loader`. If a rank was asked to stop, covers only the
  /// batches that its loader still returned: images + failed is then less than the number of
  /// samples, on every rank. Empty without a model.
  virtual std::optional<Evaluation> evaluate(Loader& loader) = 0;
  /// Makes later evaluations call `each` for every sample of this process's loader, in its order.
  virtual void on_prediction(std::function<void(const Prediction&)> /*each*/) {}
};

}  // namespace millrace::train
