// data.cache=ram: every sample's bytes are kept in memory from its first read on.
#pragma once

#include <memory>

#include "millrace/reader.h"

namespace millrace::pipeline {

/// Wraps `reader`. Throws UsageError if the whole set is larger than the memory that is free now,
/// what other such caches have been promised taken off.
std::unique_ptr<Reader> keep_in_ram(std::unique_ptr<Reader> reader);

/// Bytes that can be allocated without pushing anything out: MemAvailable, or what the control
/// group leaves where that is less.
std::uint64_t free_memory();

}  // namespace millrace::pipeline
