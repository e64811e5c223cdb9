// The number of cores that this process may use.
#pragma once

#include "base/private_api.h"

namespace millrace::base {

/// Returns the cores that this process may run on: at least 1.
MILLRACE_PRIVATE_API int available_cores();

}  // namespace millrace::base
