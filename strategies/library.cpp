// The library's doors, found by dlsym (strategies/torch_library.h).
#include <torch/version.h>

#include "strategies/single.h"

/// Throws what the strategies' constructors throw.
extern "C" millrace::Strategy* millrace_make_strategy(const millrace::StrategyOptions* options) {
  return new millrace::Single(*options);
}

/// LibTorch's version, "2.11.0".
extern "C" const char* millrace_torch_version() { return TORCH_VERSION; }
