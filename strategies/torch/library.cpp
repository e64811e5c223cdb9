// Entry points of the LibTorch library, found by dlsym (strategies/trainer/torch_library.h).
#include <torch/version.h>

#include <cstdio>

#include "base/private_api.h"
#include "millrace/error.h"
#include "strategies/torch/cuda_library.h"
#include "strategies/torch/data_parallel.h"
#include "strategies/torch/ddp.h"
#include "strategies/torch/device.h"
#include "strategies/torch/single.h"
#include "strategies/trainer/train_choices.h"

/// Makes a strategy. Throws what the strategies' constructors throw.
extern "C" MILLRACE_PRIVATE_API millrace::train::Strategy* millrace_make_strategy(
    const millrace::train::StrategyOptions* options) {
  using millrace::train::StrategyKind;
  switch (millrace::train::strategy_of(options->recipe)) {
    case StrategyKind::ddp:
      return new millrace::train::Ddp(*options);
    case StrategyKind::data_parallel:
      return new millrace::train::DataParallel(*options);
    case StrategyKind::single:
      break;
  }
  return new millrace::train::Single(*options);
}

/// Loads the CUDA module and makes the device's context, if a device of CUDA is named.
extern "C" MILLRACE_PRIVATE_API void millrace_load_ahead(const char* device) {
  try {
    const int index = millrace::train::device_index(device);
    if (index >= 0) millrace::train::CudaLibrary::load("", index);
  } catch (const millrace::Error&) {  // the strategy says why
  }
}

/// Loads the CUDA module and asks for a device, as train.device=cuda does. Writes what fails to
/// `reason` (cut to `capacity`), and nothing if it works.
extern "C" MILLRACE_PRIVATE_API void millrace_try_cuda(char* reason, std::size_t capacity) {
  try {
    millrace::train::CudaLibrary::load("", 0);
    std::snprintf(reason, capacity, "%s", "");
  } catch (const millrace::Error& error) {
    std::snprintf(reason, capacity, "%s", error.what());
  }
}

/// Returns LibTorch's version, such as "2.11.0".
extern "C" MILLRACE_PRIVATE_API const char* millrace_torch_version() { return TORCH_VERSION; }
