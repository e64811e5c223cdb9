// A file that appears under its name only when it is whole and on the disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace millrace::base {

/// Writes to a temporary name in the same folder; commit() fsyncs and renames. Without commit(),
/// nothing is left behind, but by a process that is killed. Every failure is a RunError with the
/// file and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* doing) const;

  std::filesystem::path path_;
  std::string temporary_;
  int file_ = -1;
};

/// Removes the temporary files in `folder` whose writers were killed: those that nobody has locked.
void remove_stale_temporaries(const std::filesystem::path& folder);

}  // namespace millrace::base
