// Images made up on the spot, for studies of a loader without a data set: no file is read.
#pragma once

#include <memory>

#include "millrace/reader.h"

namespace millrace::pipeline {

std::unique_ptr<Reader> open_synthetic(const DataOptions& options);

}  // namespace millrace::pipeline
