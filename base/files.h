// Files: those of data sets, checksums, replacing a file atomically, and mapped files that are
// truncated while in use.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/private_api.h"
#include "base/text.h"
#include "millrace/reader.h"

namespace millrace::base {

// Survives the truncation of a mapped file while it is in use (contained-failures contract). The
// kernel answers the next access to a lost page with SIGBUS. The handler replaces the page with
// zeros and increments a counter. From then on readers check the file (is_damaged), so that the
// sample concerned fails like any other.

struct GuardedRange;

/// Guards `size` bytes of a mapped file (whole pages). The first call installs the SIGBUS handler;
/// faults elsewhere go to the handler that was installed before.
GuardedRange* guard(const void* memory, std::size_t size);
/// Ends the guard; call it before the range is unmapped.
void unguard(GuardedRange* range);
/// Returns true once a page of this range was lost.
bool is_damaged(const GuardedRange* range);

/// Called in a SIGBUS handler: replaces the lost page with zeros and returns true if the fault was
/// in a guarded range.
bool replace_lost_page(const siginfo_t* info);

/// Returns the number of pages replaced so far, in all mapped files.
std::uint64_t mapped_faults();

/// Owns a file descriptor and closes it. -1: none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      descriptor_ = other.release();
    }
    return *this;
  }
  ~Descriptor() { close(); }

  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }
  int get() const { return descriptor_; }
  /// Gives up ownership and returns the descriptor.
  int release() { return std::exchange(descriptor_, -1); }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// Closes a C stream when its owner is destroyed.
struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FilePointer = std::unique_ptr<std::FILE, CloseFile>;

// Opens the files and folders of a data set. Never hangs on a FIFO, and says what to do if a path
// does not exist.

struct OpenFile {
  Descriptor descriptor;
  std::uint64_t size = 0;  ///< size in bytes
};

/// Throws RunError if `error`, an errno, means that this process or machine has run out of a
/// resource. Then the data is not at fault, and no sample may be left out for it.
void require_resources(std::string_view path, int error);

/// Opens a regular file for reading. Throws DataError for anything else.
MILLRACE_PRIVATE_API OpenFile open_regular(const char* path);
inline OpenFile open_regular(const std::string& path) { return open_regular(path.c_str()); }

/// Reads `size` bytes from `offset` on and returns their number; it is smaller only at the end of
/// the file. Throws DataError.
MILLRACE_PRIVATE_API std::size_t read_at(int descriptor, std::uint8_t* out, std::size_t size,
                                         std::uint64_t offset, const char* path);

/// Smallest size that lists cannot hold: they keep 32 bits of a sample's size, and this number for
/// any longer sample, so that only that sample fails when it is read.
inline constexpr std::uint32_t kTooLong = std::numeric_limits<std::uint32_t>::max();
inline std::uint32_t listed_size(std::uint64_t size) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(size, kTooLong));
}

/// Stores `path`. Returns false if it is too long to be opened.
MILLRACE_PRIVATE_API bool set_path(Location& location, std::string_view path);

/// Opens the file and reads a sample from it. Throws DataError, also if the file's length has
/// changed.
MILLRACE_PRIVATE_API Sample read_located(const Location& location, Buffer& scratch);
/// Reads a sample from a file that is already open.
Sample read_located(const Location& location, int descriptor, Buffer& scratch);

/// Throws DataError unless `path` is a folder; the hint says how to make a data set of `kind`, as
/// `millrace data make` names it.
MILLRACE_PRIVATE_API void require_folder(const std::string& path, const std::string& kind);

/// Return true if `path` exists (as anything, or as a folder).
MILLRACE_PRIVATE_API bool exists(const std::string& path);
MILLRACE_PRIVATE_API bool is_folder(const std::string& path);

// Checksums of files, to detect damage.

/// Returns the XXH3 (64 bits) of the bytes as 16 hexadecimal digits.
MILLRACE_PRIVATE_API std::string checksum(std::string_view bytes);
/// Returns the checksum of a file's content. Throws DataError if it cannot be read.
MILLRACE_PRIVATE_API std::string file_checksum(const std::filesystem::path& file);

// A file that appears under its name only when it is complete and on disk.

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
