// Strategy for training on one device.
#pragma once

#include <memory>
#include <optional>

#include "strategies/torch/device_graph.h"
#include "strategies/torch/graphed_steps.h"
#include "strategies/torch/torch_strategy.h"

namespace millrace::train {

class Single final : public TorchStrategy {
 public:
  /// `streams` and `graph` replace the device's own, for tests.
  explicit Single(const StrategyOptions& options, std::unique_ptr<DeviceStreams> streams = nullptr,
                  std::unique_ptr<DeviceGraph> graph = nullptr);

 protected:
  Loss gradients(Batch& batch, const StepContext& place, pipeline::SpanClock& spans) override;

 private:
  std::optional<GraphedSteps> graphed_;  ///< only if options.graph_samples asks for it
};

}  // namespace millrace::train
