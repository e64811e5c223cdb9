// The members of a tar archive, header by header, from bytes in memory: ustar, GNU's long names and
// pax's paths and sizes. Nothing is unpacked and nothing is written, so a member can lead nowhere;
// names that try to (absolute, with "..") are refused all the same.
// Format: POSIX.1-2017, pax; GNU tar manual, "Basic Tar Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace millrace::pipeline {

struct TarMember {
  std::string_view name;    ///< without "./" in front; valid until the walk goes on
  std::uint64_t start = 0;  ///< of its first header, those of a long name included
  std::uint64_t data = 0;   ///< where its bytes begin
  std::uint64_t size = 0;
  const char* odd = nullptr;  ///< null for a file, else what it is: "a symbolic link"
};

class TarWalk {
 public:
  static constexpr std::size_t kBlock = 512;

  /// `file` is for messages. `offset`: where to begin, at a member's start.
  TarWalk(std::string_view file, std::span<const std::uint8_t> bytes, std::uint64_t offset = 0)
      : file_(file), bytes_(bytes), at_(offset) {}

  /// The next file, link or device; false at the end. Folders are passed over. Throws DataError
  /// with file and offset for what is no archive, damaged, cut off or of a kind that is not known.
  bool next(TarMember& member);

 private:
  struct Extended;

  std::span<const std::uint8_t> header(std::uint64_t at) const;
  std::uint64_t number(std::span<const std::uint8_t> field, std::uint64_t at,
                       const char* what) const;
  std::span<const std::uint8_t> contents(std::uint64_t at, std::uint64_t size) const;
  void read_pax(std::span<const std::uint8_t> records, std::uint64_t at, Extended& extended) const;
  void check_end() const;
  [[noreturn]] void fail(std::uint64_t at, const std::string& reason, const char* hint) const;

  std::string_view file_;
  std::span<const std::uint8_t> bytes_;
  std::uint64_t at_;
  std::string name_;
};

}  // namespace millrace::pipeline
