// Recipe keys of the training.
#pragma once

#include <vector>

#include "millrace/param.h"

namespace millrace::train {

/// Returns [train], [simulated] and [eval].
std::vector<Param> train_keys();
/// Returns [debug].
std::vector<Param> debug_keys();

}  // namespace millrace::train
