// A step's forward and backward pass as a graph (train.cuda_graphs=on): decides which batches run
// eagerly and when the graph is captured, and owns the memory that it reads and writes.
//
// Follows PyTorch's documentation. Some steps run eagerly on a side stream first, so that libraries
// allocate their workspaces and choose their algorithms. The capture then starts without gradients,
// so that backward writes them to the graph's own memory. Replays read a batch from the memory of
// the captured one. Warm-up steps are steps of the run, and the capture does no work: no step is
// lost or taken twice.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "measure/spans.h"
#include "measure/step_record.h"
#include "strategies/torch/cuda_library.h"
#include "strategies/torch/device.h"
#include "strategies/torch/step_graphs.h"
#include "strategies/torch/torch_strategy.h"

namespace millrace::train {

class GraphedSteps {
 public:
  /// Forward and backward pass over images and targets. Returns the loss, detached from autograd,
  /// and leaves gradients in the parameters, which had none before. Enters forward and backward on
  /// the clock if there is one. The graph keeps it, so it must not refer to its step.
  using Pass = std::function<torch::Tensor(
      const torch::Tensor& images, const torch::Tensor& targets, measure::SpanClock* spans)>;

  /// Eager steps of full size before the capture.
  static constexpr int kWarmUps = kGraphWarmUps;

  /// `samples`: size of the batches whose steps are captured. `streams` must outlive this object.
  GraphedSteps(std::unique_ptr<DeviceGraph> graph, DeviceStreams& streams,
               std::vector<torch::Tensor> parameters, std::int64_t samples);

  /// Runs `pass` eagerly or as a replay. Returns the loss, which the next call may overwrite, and
  /// leaves gradients in the parameters, which may be changed and dropped. Every call must pass the
  /// same `pass`. A replay counts as forward. Throws RunError if the pass cannot be captured.
  torch::Tensor run(const torch::Tensor& images, const torch::Tensor& targets,
                    measure::SpanClock& spans, const Pass& pass);
  /// Returns what the last run() was besides a step.
  measure::SetUp last_set_up() const { return set_up_; }

 private:
  /// Returns whether a batch has the captured form, which the first full one determines.
  bool takes(const torch::Tensor& images, const torch::Tensor& targets);
  void capture(const Pass& pass);

  std::unique_ptr<DeviceGraph> graph_;
  DeviceStreams& streams_;
  std::vector<torch::Tensor> parameters_;
  std::int64_t samples_;
  int warm_ups_ = 0;
  measure::SetUp set_up_ = measure::SetUp::none;
  torch::Tensor images_, targets_;        ///< inputs of the graph
  torch::Tensor loss_;                    ///< output of the graph; undefined until the capture
  std::vector<torch::Tensor> gradients_;  ///< outputs, one per parameter; some undefined
};

/// Strategy for training on one device.
class Single final : public TorchStrategy {
 public:
  /// `streams` and `graph` replace the device's own, for tests.
  explicit Single(const StrategyOptions& options, std::unique_ptr<DeviceStreams> streams = nullptr,
                  std::unique_ptr<DeviceGraph> graph = nullptr);

 protected:
  Loss gradients(Batch& batch, const StepContext& place, measure::SpanClock& spans) override;

 private:
  /// Runs a step with the optimizer's as a graph.
  Loss whole_step(Batch& batch, const StepContext& place, measure::SpanClock& spans);

  // At most one of the two is set, and only if options.graph_samples asks for it.
  std::optional<GraphedSteps> graphed_;
  std::optional<StepGraphs> whole_;
};

}  // namespace millrace::train
