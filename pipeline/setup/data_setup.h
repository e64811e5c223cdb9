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

/// Where the wish to stop ends a read: at once, or only where it waits for a server that has
/// failed.
enum class StopAt { once, failure };

/// Opens the data set's `split` as [data] says. Labels must be less than `classes`, or if that is
/// 0, less than model.classes. `host` gets remarks, also while samples are read. `stop` ends what
/// waits for a remote set once it is set, or with StopAt::failure only what waits for a server that
/// has failed; null: nothing does. Both must outlive the reader. Throws UsageError and DataError.
MILLRACE_PRIVATE_API std::shared_ptr<const Reader> open_data(
    const Recipe& recipe, const std::string& split, std::size_t classes, const Host& host,
    const std::atomic<bool>* stop = nullptr, StopAt at = StopAt::once);

/// Returns the disk of data.storage.*, or null if none is emulated. All loaders of a run share one.
MILLRACE_PRIVATE_API std::shared_ptr<StorageModel> emulated_storage(const Recipe& recipe);

}  // namespace millrace::pipeline
