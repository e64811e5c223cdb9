// Walks the members of a tar archive in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace millrace::pipeline {

/// A member of a tar archive.
struct TarMember {
  std::string_view name;    ///< without a leading "./"; valid until the next call of next()
  std::uint64_t start = 0;  ///< offset of its first header, long-name headers included
  std::uint64_t data = 0;   ///< offset of its bytes
  std::uint64_t size = 0;
  const char* odd = nullptr;  ///< null for a file, otherwise its type: "a symbolic link"
};

/// Walks the members of a tar archive in memory, header by header: ustar, GNU's long names, and
/// pax's paths and sizes. Unpacks and writes nothing, so no member can escape; names that try to
/// (absolute, or with "..") are rejected all the same. Format: POSIX.1-2017, pax; GNU tar manual,
/// "Basic Tar Format".
class TarWalk {
 public:
  static constexpr std::size_t kBlock = 512;

  /// Returns the bytes that a member's contents take in the archive.
  static std::uint64_t padded(std::uint64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

  /// `file` is for messages; `offset` is the start of the first member to visit. `bytes` may end
  /// before the archive does, `behind` bytes earlier: within the contents of the last member that
  /// is visited.
  TarWalk(std::string_view file, std::span<const std::uint8_t> bytes, std::uint64_t offset = 0,
          std::uint64_t behind = 0)
      : file_(file), bytes_(bytes), at_(offset), behind_(behind) {}

  /// Begins again with other bytes, at `offset`. Memory for names is kept.
  void start(std::span<const std::uint8_t> bytes, std::uint64_t offset) {
    bytes_ = bytes;
    at_ = offset;
    behind_ = 0;
  }
  /// Returns where the next member would begin.
  std::uint64_t at() const { return at_; }

  /// Returns the next file, link or device in `member`; false at the end. Skips folders. Throws
  /// DataError with file and offset for bytes that are not an archive, damaged, truncated or of an
  /// unknown type.
  bool next(TarMember& member);

 private:
  struct Extended;

  std::span<const std::uint8_t> header(std::uint64_t at) const;
  std::uint64_t number(std::span<const std::uint8_t> field, std::uint64_t at,
                       const char* what) const;
  std::span<const std::uint8_t> contents(std::uint64_t at, std::uint64_t size) const;
  void check_room(std::uint64_t at, std::uint64_t size, std::uint64_t room) const;
  void read_pax(std::span<const std::uint8_t> records, std::uint64_t at, Extended& extended) const;
  void check_end() const;
  [[noreturn]] void fail(std::uint64_t at, const std::string& reason, const char* hint) const;

  std::string_view file_;
  std::span<const std::uint8_t> bytes_;
  std::uint64_t at_;
  std::uint64_t behind_;
  std::string name_;
};

}  // namespace millrace::pipeline
