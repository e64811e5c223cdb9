// Training on one device, by the sync clock (contract T2): the device has finished when a step
// ends.
#pragma once

#include "strategies/torch_strategy.h"

namespace millrace {

class Single final : public TorchStrategy {
 public:
  explicit Single(const StrategyOptions& options) : TorchStrategy(options) {}

 protected:
  Loss gradients(Batch& batch, const StepPlace& place, SpanClock& spans) override;
};

}  // namespace millrace
