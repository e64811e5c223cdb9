// A simulated accelerator: every step takes a set time and no CPU, so that a loader can be sized
// for a device that one does not have.
#pragma once

#include <memory>

#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// `update_ms`: milliseconds a step, from when its batch is there. `inflight`: steps that it may
/// have to do at a time, of which it holds the batches until it begins them; 0: none outlasts the
/// call (train.clock=sync).
std::unique_ptr<Strategy> make_simulated(double update_ms, int inflight = 0);

}  // namespace millrace::train
