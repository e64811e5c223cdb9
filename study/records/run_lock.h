// One writer at a time in the directory of a run, a profile or a sweep.
#pragma once

#include <chrono>
#include <filesystem>

#include "base/descriptor.h"

namespace millrace::study {

/// Holds `run.lock` in a directory by flock(2) for as long as it lives. The kernel frees the lock
/// when the process ends, however that happens. The file also names the holder, for people to read;
/// that text decides nothing. Readers of a directory take no lock.
class RunLock {
 public:
  static constexpr const char* kFile = "run.lock";

  /// Locks `directory`, which must exist. Waits up to `patience` for a holder that was killed and
  /// has not ended yet. Throws UsageError where another process goes on writing there, or where the
  /// file system has no locks; RunError where the file cannot be made.
  explicit RunLock(const std::filesystem::path& directory,
                   std::chrono::milliseconds patience = std::chrono::seconds(2));

  /// Passes the lock on to processes that are started from now on: it is free again when the last
  /// of them has ended.
  void share_with_children();

 private:
  base::Descriptor file_;
};

}  // namespace millrace::study
