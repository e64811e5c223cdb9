// Recipe keys of sweeps.
#pragma once

#include <vector>

#include "millrace/param.h"

namespace millrace::study {

inline constexpr double kMaxFolds = 1000;  ///< of sweep.folds

/// Returns [sweep].
std::vector<Param> sweep_keys();

}  // namespace millrace::study
