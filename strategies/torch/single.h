// Strategy for training on one device.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>

#include "strategies/torch/cuda_library.h"
#include "strategies/torch/device.h"
#include "strategies/torch/step_graphs.h"
#include "strategies/torch/torch_strategy.h"

namespace millrace::train {

class Single final : public TorchStrategy {
 public:
  /// `streams` and `graph` replace the device's own, for tests.
  explicit Single(const StrategyOptions& options, std::unique_ptr<DeviceStreams> streams = nullptr,
                  std::unique_ptr<DeviceGraph> graph = nullptr);

 protected:
  Loss gradients(Batch& batch, const StepContext& place, measure::SpanClock& spans) override;

 private:
  /// Returns whether the graphs can take a step on the batch.
  bool could_replay(const Batch& batch, const StepContext& place);
  /// Runs a step as a graph.
  Loss graphed_step(Batch& batch, const StepContext& place, measure::SpanClock& spans);

  std::optional<StepGraphs> graphs_;  ///< if options.graph_samples asks for them
};

}  // namespace millrace::train
