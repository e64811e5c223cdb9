// Recipe keys of models.
#pragma once

#include <vector>

#include "millrace/param.h"

namespace millrace::train {

/// Returns [model].
std::vector<Param> model_keys();

}  // namespace millrace::train
