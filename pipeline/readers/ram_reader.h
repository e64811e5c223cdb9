// data.cache=ram: keeps every sample's bytes in memory from its first read on.
#pragma once

#include <memory>

#include "millrace/reader.h"

namespace millrace::pipeline {

/// Wraps `reader`. Throws UsageError if the whole set is larger than the memory that is free now,
/// minus what other such caches have reserved.
std::unique_ptr<Reader> keep_in_ram(std::unique_ptr<Reader> reader);

/// Returns the number of bytes that can be allocated without evicting anything: MemAvailable, or
/// what the control group leaves if that is less.
std::uint64_t free_memory();

}  // namespace millrace::pipeline
