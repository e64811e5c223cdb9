// Recipe keys of the compiled chain.
#pragma once

#include <vector>

#include "millrace/param.h"

namespace millrace::augment {

/// Returns `resample` and [output].
std::vector<Param> plan_keys();

}  // namespace millrace::augment
