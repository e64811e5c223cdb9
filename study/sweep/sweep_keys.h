// Recipe keys of sweeps.
#pragma once

#include <vector>

#include "millrace/param.h"

namespace millrace::study {

/// Returns [sweep].
std::vector<Param> sweep_keys();

}  // namespace millrace::study
