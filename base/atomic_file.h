// A file that appears under its name only when it is complete and on disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/private_api.h"

namespace millrace::base {

/// Writes to a temporary name in the same folder; commit() calls fsync and renames it. replace()
/// renames it only: after a crash of the system, the file may hold anything. Without
/// commit() the temporary file is removed, unless the process is killed. Every failure is a
/// RunError with the file and the system's reason.
class MILLRACE_PRIVATE_API AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();
  void replace();

 private:
  [[noreturn]] void fail(const char* doing) const;

  std::filesystem::path path_;
  std::string temporary_;
  int file_ = -1;
};

/// Removes the temporary files in `folder` whose writers were killed, that is, those without a
/// lock.
MILLRACE_PRIVATE_API void remove_stale_temporaries(const std::filesystem::path& folder);

}  // namespace millrace::base
