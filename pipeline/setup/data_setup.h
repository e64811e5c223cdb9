// Opens the data set that a recipe names.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "base/private_api.h"
#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "pipeline/readers/storage.h"
#include "pipeline/setup/host.h"

namespace millrace::pipeline {

/// Returns what [data] says about the data set's `split`; open_data() describes the arguments.
/// Throws UsageError.
MILLRACE_PRIVATE_API DataOptions data_options(const Recipe& recipe, const std::string& split,
                                              std::size_t classes, const Host& host,
                                              const std::atomic<bool>* stop = nullptr,
                                              StopAt at = StopAt::once);

/// Opens the data set's `split` as [data] says. Labels must be less than `classes`, or if that is
/// 0, less than model.classes. `host` gets remarks, also while samples are read. `stop` is
/// the request to stop, and `at` says what it ends; null: nothing. `host` and `stop` must outlive
/// the reader. Throws UsageError and DataError.
MILLRACE_PRIVATE_API std::shared_ptr<const Reader> open_data(
    const Recipe& recipe, const std::string& split, std::size_t classes, const Host& host,
    const std::atomic<bool>* stop = nullptr, StopAt at = StopAt::once);

/// Returns the disk of data.storage.*, or null if none is emulated. All loaders of a run share one.
MILLRACE_PRIVATE_API std::shared_ptr<StorageModel> emulated_storage(const Recipe& recipe);

}  // namespace millrace::pipeline
