// Maps plain files and inflates gzip files, with readable bytes behind the end.
#include "pipeline/readers/mapped_file.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/mapped_file_guard.h"
#include "base/open_file.h"
#include "millrace/buffer.h"
#include "millrace/error.h"

namespace millrace::pipeline {
namespace {

std::size_t whole_pages(std::size_t size) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (size + page - 1) / page * page;
}

/// zlib's state for one gzip file, fed from memory in pieces that fit its 32-bit counters.
class Inflater {
 public:
  Inflater(const std::string& path, std::span<const std::uint8_t> packed)
      : path_(path), left_(packed) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Inflates into `out` until it is full or the file ends. Returns the number of bytes written.
  std::size_t fill(std::span<std::uint8_t> out) {
    std::size_t written = 0;
    while (written < out.size() && !ended_) {
      const auto room = static_cast<uInt>(std::min(out.size() - written, kPiece));
      stream_.next_out = out.data() + written;
      stream_.avail_out = room;
      step();
      written += room - stream_.avail_out;
    }
    return written;
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 30;

  void step() {
    const auto piece = static_cast<uInt>(std::min(left_.size(), kPiece));
    stream_.next_in = const_cast<Bytef*>(left_.data());  // zlib only reads it
    stream_.avail_in = piece;
    const int status = ::inflate(&stream_, Z_NO_FLUSH);
    left_ = left_.subspan(piece - stream_.avail_in);
    if (status == Z_STREAM_END) return end_of_member();
    if (status == Z_OK) return;
    if (status == Z_BUF_ERROR && left_.empty()) fail("ends early");
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    fail(stream_.msg != nullptr ? stream_.msg : "damaged");
  }

  /// Continues with the next gzip member. Anything else behind a member is an error.
  void end_of_member() {
    if (left_.empty()) {
      ended_ = true;
    } else if (left_.size() >= 2 && left_[0] == 0x1f && left_[1] == 0x8b) {
      inflateReset(&stream_);
    } else {
      fail(fmt::format("{} bytes that are not gzip behind its end", left_.size()));
    }
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw DataError(fmt::format("{}: gzip: {}", path_, reason),
                    "fetch the file again, or check it with gzip -t");
  }

  const std::string& path_;
  std::span<const std::uint8_t> left_;
  z_stream stream_{};
  bool ended_ = false;
};

}  // namespace

MappedFile::MappedFile(std::string path, std::size_t size)
    : path_(std::move(path)), size_(size), reserved_(whole_pages(size) + whole_pages(kTailSlack)) {
  void* memory = mmap(nullptr, reserved_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::uint8_t*>(memory);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      memory_(std::exchange(other.memory_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      reserved_(std::exchange(other.reserved_, 0)),
      guard_(std::exchange(other.guard_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  std::swap(reserved_, other.reserved_);
  std::swap(guard_, other.guard_);
  return *this;
}

MappedFile::~MappedFile() {
  if (guard_ != nullptr) base::unguard(guard_);
  if (memory_ != nullptr) munmap(memory_, reserved_);
}

MappedFile MappedFile::map(const std::string& path) {
  const base::OpenFile file = base::open_regular(path);
  // Maps the file over the front of a longer reservation: the bytes behind its last page stay
  // readable, and the kernel zeroes those behind its last byte.
  MappedFile mapped(path, file.size);
  if (file.size > 0 && mmap(mapped.memory_, file.size, PROT_READ, MAP_PRIVATE | MAP_FIXED,
                            file.descriptor.get(), 0) == MAP_FAILED)
    throw DataError(fmt::format("{}: cannot be mapped: {}", path, std::strerror(errno)),
                    "copy the data set to a local disk");
  mapped.guard_ = base::guard(mapped.memory_, whole_pages(file.size));
  return mapped;
}

void MappedFile::let_go() const {
  // Only for a mapped file: anonymous pages would lose what was inflated into them.
  if (guard_ != nullptr) madvise(memory_, whole_pages(size_), MADV_DONTNEED);
}

MappedFile MappedFile::inflate(const std::string& path, const Announced& announced) {
  const MappedFile packed = map(path);
  Inflater inflater(path, packed.bytes());

  std::array<std::uint8_t, kHead> head{};
  const std::size_t head_size = inflater.fill(head);
  const std::uint64_t size = announced({head.data(), head_size});
  constexpr std::uint64_t kDeflateLimit = 1032;  // no deflate stream compresses further
  if (size / kDeflateLimit > packed.size_)
    throw DataError(fmt::format("{}: its header announces {} bytes, more than {} bytes of gzip can "
                                "hold",
                                path, size, packed.size_),
                    "the header is damaged: fetch the file again");
  if (head_size > size)
    throw DataError(fmt::format("{}: longer than the {} bytes its header announces", path, size),
                    "fetch the file again");

  MappedFile plain(path, size);
  std::copy_n(head.data(), head_size, plain.memory_);
  const std::size_t filled =
      head_size + inflater.fill({plain.memory_ + head_size, size - head_size});
  if (filled < size)
    throw DataError(
        fmt::format("{}: truncated: {} bytes where its header announces {}", path, filled, size),
        "fetch the file again");
  // Asking for one byte more makes zlib read the trailer's checksum.
  std::array<std::uint8_t, 1> beyond{};
  if (inflater.fill(beyond) > 0)
    throw DataError(fmt::format("{}: longer than the {} bytes its header announces", path, size),
                    "fetch the file again");
  mprotect(plain.memory_, plain.reserved_, PROT_READ);
  return plain;
}

MappedPart& MappedPart::of(Buffer& scratch) {
  if (auto* part = dynamic_cast<MappedPart*>(scratch.attachment())) return *part;
  auto made = std::make_unique<MappedPart>();
  MappedPart& part = *made;
  scratch.attach(std::move(made));
  return part;
}

const std::uint8_t* MappedPart::map(int descriptor, std::uint64_t offset, std::size_t size) {
  drop();
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = offset / page * page;
  const std::uint64_t length = offset - begin + size + kTailSlack;
  void* memory =
      mmap(nullptr, length, PROT_READ, MAP_SHARED, descriptor, static_cast<off_t>(begin));
  if (memory == MAP_FAILED) return nullptr;
  memory_ = memory;
  size_ = (length + page - 1) / page * page;
  guard_ = base::guard(memory_, size_);
  return static_cast<const std::uint8_t*>(memory_) + (offset - begin);
}

void MappedPart::drop() {
  if (memory_ == nullptr) return;
  damaged_ = damaged();
  base::unguard(guard_);
  guard_ = nullptr;
  munmap(memory_, size_);
  memory_ = nullptr;
}

}  // namespace millrace::pipeline
