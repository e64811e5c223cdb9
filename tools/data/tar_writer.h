// Writes a ustar archive member by member. Its bytes depend on names and contents alone: no times,
// no owners.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"

namespace millrace::tools {

class TarWriter {
 public:
  /// Creates or truncates `path`. Throws RunError, as all members do, with the file and the
  /// system's reason.
  explicit TarWriter(std::string path);

  /// Adds a member. `name` has up to 100 bytes.
  void add(std::string_view name, std::span<const std::uint8_t> bytes);
  /// Writes the end mark. The archive is then on the disk.
  void finish();
  /// Returns the bytes so far, without the end mark.
  std::uint64_t size() const { return size_; }

  /// Returns the bytes that a member of `bytes` bytes takes in an archive.
  static std::uint64_t member_size(std::uint64_t bytes);

 private:
  void put(std::span<const std::uint8_t> bytes);
  void flush();

  std::string path_;
  base::Descriptor file_;
  std::vector<std::uint8_t> pending_;
  std::uint64_t size_ = 0;
};

}  // namespace millrace::tools
