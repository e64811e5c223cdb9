// Readers for data.cache: ram keeps samples in memory, cold reads each from storage.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "millrace/reader.h"

namespace millrace::pipeline {

// data.cache=ram: keeps every sample's bytes in memory from its first read on.

/// Wraps `reader`. Throws UsageError if the whole set is larger than the memory that is free now,
/// minus what other such caches have reserved.
std::unique_ptr<Reader> make_ram_reader(std::unique_ptr<Reader> reader);

/// Returns the number of bytes that can be allocated without evicting anything: MemAvailable, or
/// what the control group leaves if that is less.
std::uint64_t free_memory();

// data.cache=cold: every read comes from storage, and a check before each read confirms it.

/// Wraps `reader`, whose samples must lie in files unchanged (Reader::locate); otherwise throws
/// UsageError. Before a read, evicts its pages from the page cache (posix_fadvise) and looks for
/// them (mincore); Reader::cold() counts the outcomes. Calls `warn` once if pages cannot be
/// evicted.
std::unique_ptr<Reader> make_cold_reader(std::unique_ptr<Reader> reader,
                                         std::function<void(const std::string&)> warn);

}  // namespace millrace::pipeline
