// Generated images, to study a loader without a data set: reads no file.
#pragma once

#include <memory>

#include "millrace/reader.h"

namespace millrace::pipeline {

/// Opens options.synthetic.
std::unique_ptr<Reader> open_synthetic(const DataOptions& options);

}  // namespace millrace::pipeline
