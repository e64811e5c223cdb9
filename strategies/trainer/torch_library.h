// Opens the library that links LibTorch, when a model is needed. Loading it costs 113 MB and half a
// second; commands that need no model never load it.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "base/private_api.h"
#include "strategies/trainer/strategy.h"
#include "strategies/trainer/strategy_options.h"

namespace millrace::train {

/// Makes the strategy that the options name. Throws DeviceError if this build lacks LibTorch or the
/// device is missing, and what the strategies' constructors throw.
MILLRACE_PRIVATE_API std::unique_ptr<Strategy> make_torch_strategy(const StrategyOptions& options);

/// Begins to load LibTorch, and the CUDA module where `device` is "cuda" or "cuda:N", whose context
/// is then made, in a thread of its own: half a second on a CPU, one with CUDA. Call
/// make_torch_strategy(), which reports any failure, once the future is ready.
MILLRACE_PRIVATE_API std::future<void> load_torch_ahead(const std::string& device);

/// Returns a function of a library of ours that uses LibTorch, "libmillrace_bench.so", which is
/// never unloaded. Throws DeviceError if this build lacks LibTorch, or the library is of another
/// build.
MILLRACE_PRIVATE_API void* torch_function(const char* library, const char* name);

/// Loads LibTorch and the CUDA module, and asks for a device. Returns why train.device=cuda would
/// fail, in the words of its message; empty if it would not.
MILLRACE_PRIVATE_API std::string why_no_cuda();

/// Loads LibTorch and returns its version, such as "2.11.0". Throws DeviceError without LibTorch.
MILLRACE_PRIVATE_API std::string torch_version();

}  // namespace millrace::train
