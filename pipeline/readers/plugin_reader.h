// Readers from plugins: `data.reader` names a unit from plugins.path.
#pragma once

#include <memory>

#include "millrace/millrace.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

/// Opens the data set with options.path, split and parameters. Throws DataError or UsageError that
/// the reader reports, and DataError if its description of the data set contradicts itself.
std::unique_ptr<Reader> open_plugin_reader(const millrace_unit& unit, const DataOptions& options);

}  // namespace millrace::pipeline
