// Sets of archives behind http:// and https://. Archives are fetched whole, into the cache that all
// processes share, when their first sample is read.
#pragma once

#include <memory>

#include "base/private_api.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

class RetryClock;

/// Opens a remote set: with one request if it has a set.index. Samples, their order, labels and
/// fingerprint are those of the same archives on a disk. Throws DataError for a set that is missing
/// or wrong, FetchError for one that cannot be reached, and UsageError for a cache that is too
/// small.
MILLRACE_PRIVATE_API std::unique_ptr<Reader> open_remote_tar(const DataOptions& options);

}  // namespace millrace::pipeline
