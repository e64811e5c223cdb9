// Training on one device.
#pragma once

#include "strategies/torch_strategy.h"

namespace millrace {

class Single final : public TorchStrategy {
 public:
  explicit Single(const StrategyOptions& options, std::unique_ptr<DeviceStreams> streams = nullptr)
      : TorchStrategy(options, std::move(streams)) {}

 protected:
  Loss gradients(Batch& batch, const StepPlace& place, SpanClock& spans) override;
};

}  // namespace millrace
