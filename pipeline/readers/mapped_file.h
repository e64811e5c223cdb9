// A whole file in memory, so that samples can be handed out as pointers: a plain file is mapped, a
// gzip file is inflated once. Both leave kTailSlack readable bytes behind the end. A mapped file
// that is truncated while in use does not end the process (files.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/mapped_file_guard.h"
#include "base/private_api.h"
#include "millrace/buffer.h"

namespace millrace::pipeline {

/// Owns a read-only file's bytes. Move-only.
class MILLRACE_PRIVATE_API MappedFile {
 public:
  /// Returns, from a file's first bytes, the length that it announces. Throws DataError.
  using Announced = std::function<std::uint64_t(std::span<const std::uint8_t> head)>;
  /// Number of bytes that an Announced receives (fewer if the file is shorter).
  static constexpr std::size_t kHead = 64;

  /// Maps a regular file. Throws DataError if it cannot be opened or is not a regular file.
  static MappedFile map(const std::string& path);
  /// Inflates a .gz file. Allocates no more than `announced` says, and no more than the compressed
  /// bytes could hold (bounded-memory contract). Throws DataError for a file that is damaged, ends
  /// early or has bytes behind its end.
  static MappedFile inflate(const std::string& path, const Announced& announced);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::uint8_t> bytes() const { return {memory_, size_}; }
  /// Returns true once a part of the file was missing: bytes() may hold zeros instead.
  bool damaged() const { return guard_ != nullptr && base::is_damaged(guard_); }
  /// Releases the touched pages, so that the page cache may drop them; touching them brings them
  /// back.
  void let_go() const;

 private:
  /// Allocates zeroed memory for `size` bytes and the slack.
  MappedFile(std::string path, std::size_t size);

  std::string path_;
  std::uint8_t* memory_ = nullptr;
  std::size_t size_ = 0;
  std::size_t reserved_ = 0;
  base::GuardedRange* guard_ = nullptr;  ///< set for a mapped file
};

/// A part of a file in memory, one after the other: the mapping is bounded by the longest part.
class MappedPart final : public Buffer::Attachment {
 public:
  MappedPart() = default;
  ~MappedPart() override { drop(); }
  MappedPart(const MappedPart&) = delete;
  MappedPart& operator=(const MappedPart&) = delete;

  /// Returns the part that belongs to a scratch buffer: its bytes stay valid until the buffer is
  /// used again, and the mapping ends with the buffer.
  static MappedPart& of(Buffer& scratch);

  /// Maps a part of an open file in place of the one before, and touches none of it. Returns null
  /// if the system refuses. kTailSlack bytes behind the part are readable as well; they must lie in
  /// the file.
  const std::uint8_t* map(int descriptor, std::uint64_t offset, std::size_t size);
  /// Returns true once a part held zeros, because its file was truncated: copy bytes from then on.
  bool damaged() const { return damaged_ || (guard_ != nullptr && base::is_damaged(guard_)); }

 private:
  void drop();

  void* memory_ = nullptr;
  std::size_t size_ = 0;
  base::GuardedRange* guard_ = nullptr;
  bool damaged_ = false;
};

}  // namespace millrace::pipeline
