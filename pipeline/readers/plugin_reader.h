// Readers of plugins: `data.reader` = a unit of plugins.path.
#pragma once

#include <memory>

#include "millrace/millrace.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

/// Opens the data set as options.path, split and parameters say. Throws DataError or UsageError
/// with what the reader reports, and DataError where what it says of the set contradicts itself.
std::unique_ptr<Reader> open_plugin_reader(const millrace_unit& unit, const DataOptions& options);

}  // namespace millrace::pipeline
