// A simulated accelerator: every step takes a set time and no CPU, so that a loader can be sized
// for a device that is not at hand.
#pragma once

#include <memory>

#include "base/private_api.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// `update_ms`: milliseconds per step, from the arrival of its batch. `inflight`: most steps in
/// flight, whose batches are held until they begin; 0: each call waits for its step
/// (train.clock=sync).
MILLRACE_PRIVATE_API std::unique_ptr<Strategy> make_simulated(double update_ms, int inflight = 0);

}  // namespace millrace::train
