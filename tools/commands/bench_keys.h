// Recipe keys of `millrace bench`.
#pragma once

#include <vector>

#include "millrace/param.h"

namespace millrace::tools {

/// Returns [bench].
std::vector<Param> bench_keys();

}  // namespace millrace::tools
