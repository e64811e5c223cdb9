// A ustar archive, member by member. Its bytes depend on names and contents alone: no times, no
// owners.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace millrace::tools {

class TarWriter {
 public:
  /// Writes `path` anew. Throws RunError, as everything here, with the file and the system's
  /// reason.
  explicit TarWriter(std::string path);

  /// `name`: up to 100 bytes.
  void add(std::string_view name, std::span<const std::uint8_t> bytes);
  /// Writes the end mark; the archive is on the disk then.
  void finish();
  /// Bytes so far, without the end mark.
  std::uint64_t size() const { return size_; }

  /// What a member of so many bytes takes in an archive.
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
