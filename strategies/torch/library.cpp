// Entry points of the LibTorch library, found by dlsym (strategies/trainer/torch_library.h).
#include <torch/version.h>

#include "base/private_api.h"
#include "strategies/torch/data_parallel.h"
#include "strategies/torch/ddp.h"
#include "strategies/torch/single.h"

/// Makes a strategy. Throws what the strategies' constructors throw.
extern "C" MILLRACE_PRIVATE_API millrace::train::Strategy* millrace_make_strategy(
    const millrace::train::StrategyOptions* options) {
  if (options->strategy == "ddp") return new millrace::train::Ddp(*options);
  if (options->strategy == "data_parallel") return new millrace::train::DataParallel(*options);
  return new millrace::train::Single(*options);
}

/// Returns LibTorch's version, such as "2.11.0".
extern "C" MILLRACE_PRIVATE_API const char* millrace_torch_version() { return TORCH_VERSION; }
