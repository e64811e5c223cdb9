// data.cache=cold: every read comes from storage, and that it does is checked before each.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "millrace/reader.h"

namespace millrace::pipeline {

/// Wraps `reader`, whose samples must lie in files as they are (Reader::locate); UsageError if not.
/// Before a read its pages are thrown out of the page cache (posix_fadvise) and are then looked for
/// (mincore): Reader::cold() counts. `warn` is told once if they cannot be thrown out.
std::unique_ptr<Reader> read_cold(std::unique_ptr<Reader> reader,
                                  std::function<void(const std::string&)> warn);

}  // namespace millrace::pipeline
