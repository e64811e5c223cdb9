// A simulated accelerator: every step takes a set time and no CPU, so that a loader can be sized
// for a device that one does not have.
#pragma once

#include <memory>

#include "strategies/strategy.h"

namespace millrace {

/// `update_ms`: milliseconds a step, from when its batch is there.
std::unique_ptr<Strategy> make_simulated(double update_ms);

}  // namespace millrace
