// Opens the library with everything that needs LibTorch, when a model is to be run. Loading it
// costs 113 MB and half a second; commands that need no model never do.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strategies/torch/ops_bench.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// The strategy that the options name. Throws DeviceError when this build has no LibTorch, or when
/// the device is not there, and what the strategies' constructors throw.
std::unique_ptr<Strategy> make_torch_strategy(const StrategyOptions& options);

/// See strategies/torch/ops_bench.h. Throws DeviceError when this build has no LibTorch, RunError
/// where our ops' results are not LibTorch's.
std::vector<OpTiming> bench_ops_in_library(const OpsBenchOptions& options);

/// "2.11.0", loading LibTorch; throws DeviceError without one.
std::string torch_version();

}  // namespace millrace::train
