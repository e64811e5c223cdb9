// Recipe keys of the data plane.
#pragma once

#include <vector>

#include "millrace/param.h"

namespace millrace::pipeline {

/// Returns the recipe's name, seed, [plugins], [data], [decode] and [loader].
std::vector<Param> pipeline_keys();

}  // namespace millrace::pipeline
