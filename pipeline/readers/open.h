// Readers without a file format of ours: from plugins, and of generated images.
#pragma once

#include <memory>

#include "millrace/millrace.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

// Readers from plugins: `data.reader` names a unit from plugins.path.

/// Opens the data set with options.path, split and parameters. Throws DataError or UsageError that
/// the reader reports, and DataError if its description of the data set contradicts itself.
std::unique_ptr<Reader> open_plugin_reader(const millrace_unit& unit, const DataOptions& options);

// Generated images, to study a loader without a data set: reads no file.

std::unique_ptr<Reader> open_synthetic(const DataOptions& options);

}  // namespace millrace::pipeline
