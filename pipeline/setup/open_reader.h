// The options of [data], which every reader gets.
#pragma once

#include <memory>

#include "base/private_api.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

/// Applies data.subset, data.fold, data.fraction and data.cache to a reader of the whole set.
/// Throws UsageError if it cannot serve them.
MILLRACE_PRIVATE_API std::unique_ptr<Reader> prepared(std::unique_ptr<Reader> whole,
                                                      const DataOptions& options);

}  // namespace millrace::pipeline
