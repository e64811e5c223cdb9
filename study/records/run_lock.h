// Lock that admits one writer at a time to the directory of a run, a profile or a sweep.
#pragma once

#include <chrono>
#include <filesystem>

#include "base/files.h"

namespace millrace::study {

/// Holds `run.lock` in a directory by flock(2) for the object's lifetime. The kernel frees the lock
/// when the process ends, in whatever way. The file also names the holder, for people only. Readers
/// take no lock.
class RunLock {
 public:
  static constexpr const char* kFile = "run.lock";

  /// Locks `directory`, which must exist. Waits up to `patience` for a killed holder to exit.
  /// Throws UsageError if another process is writing there or the file system has no locks,
  /// RunError if the file cannot be created.
  explicit RunLock(const std::filesystem::path& directory,
                   std::chrono::milliseconds patience = std::chrono::seconds(2));

  /// Returns whether a process holds the lock of `directory`. A process that wants the lock at this
  /// very moment tries again.
  static bool is_held(const std::filesystem::path& directory);

  /// Passes the lock on to processes started from now on. It is free again when the last of them
  /// has ended.
  void share_with_children();

 private:
  base::Descriptor file_;
};

}  // namespace millrace::study
