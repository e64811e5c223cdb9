// A whole file in memory, so that samples can be handed out as pointers: mapped where it is plain,
// inflated once where it is gzip. Both leave kTailSlack readable bytes behind the end. A file that
// is cut short while it is mapped does not end the process: see mapped_guard.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/mapped_guard.h"

namespace millrace::pipeline {

/// Owner of a read-only file's bytes; movable, freed at the end.
class MappedFile {
 public:
  /// Says, from a file's first bytes, how long it announces itself to be; throws DataError.
  using Announced = std::function<std::uint64_t(std::span<const std::uint8_t> head)>;
  /// Bytes that an Announced sees (fewer if the file is shorter).
  static constexpr std::size_t kHead = 64;

  /// Maps a regular file. Throws DataError when it cannot be opened or is not a file.
  static MappedFile map(const std::string& path);
  /// Inflates a .gz file. No more memory is taken than `announced` says, and no more than the
  /// compressed bytes could hold. Throws DataError for a damaged file, one that ends early and one
  /// with something behind its end.
  static MappedFile inflate(const std::string& path, const Announced& announced);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::uint8_t> bytes() const { return {memory_, size_}; }
  /// True once a part of it was found to be gone: bytes() may hold zeros instead.
  bool damaged() const { return guard_ != nullptr && base::is_damaged(guard_); }
  /// Lets go of the pages that were touched, so that the page cache may drop them; they come back
  /// when they are touched again.
  void let_go() const;

 private:
  /// Zeroed memory for `size` bytes and the slack.
  MappedFile(std::string path, std::size_t size);

  std::string path_;
  std::uint8_t* memory_ = nullptr;
  std::size_t size_ = 0;
  std::size_t reserved_ = 0;
  base::GuardedRange* guard_ = nullptr;  ///< of a mapped file
};

}  // namespace millrace::pipeline
