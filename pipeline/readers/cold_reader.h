// data.cache=cold: every read comes from storage, and a check before each read confirms it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "millrace/reader.h"

namespace millrace::pipeline {

/// Wraps `reader`, whose samples must lie in files unchanged (Reader::locate); otherwise throws
/// UsageError. Before a read, evicts its pages from the page cache (posix_fadvise) and looks for
/// them (mincore); Reader::cold() counts the outcomes. Calls `warn` once if pages cannot be
/// evicted.
std::unique_ptr<Reader> read_cold(std::unique_ptr<Reader> reader,
                                  std::function<void(const std::string&)> warn);

}  // namespace millrace::pipeline
