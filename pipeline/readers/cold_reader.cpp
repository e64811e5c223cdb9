// Evicts pages with posix_fadvise and checks them with mincore.
#include "pipeline/readers/cold_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "base/files.h"
#include "millrace/error.h"

namespace millrace::pipeline {
namespace {

/// Whole pages that hold a range of a file.
struct Pages {
  std::uint64_t begin;
  std::uint64_t size;
};

std::uint64_t page_size() {
  static const auto size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

/// Returns the pages of a sample, widened by `around` bytes on both sides. The kernel drops a page
/// only as a whole, and with large folios only with its neighbours.
Pages pages_of(const Location& location, std::uint64_t around) {
  const std::uint64_t unit = std::max(page_size(), around);
  const std::uint64_t begin = location.offset / unit * unit;
  const std::uint64_t end = (location.offset + location.size + unit - 1) / unit * unit;
  return {begin, end - begin};
}

void evict(int file, const Pages& pages) {
  posix_fadvise(file, static_cast<off_t>(pages.begin), static_cast<off_t>(pages.size),
                POSIX_FADV_DONTNEED);
}

/// Returns true if no page of the range is in memory. Maps the file itself and never touches the
/// mapping, so that the check brings nothing in.
bool is_cold(int file, std::uint64_t size, const Pages& pages) {
  const std::uint64_t page = page_size();
  const std::uint64_t end = std::min(pages.begin + pages.size, (size + page - 1) / page * page);
  if (end <= pages.begin) return true;
  constexpr std::size_t kPiece = 4096;  // pages per mincore call
  std::array<unsigned char, kPiece> resident;
  for (std::uint64_t begin = pages.begin; begin < end; begin += kPiece * page) {
    const std::size_t length = std::min<std::uint64_t>(kPiece * page, end - begin);
    void* memory = mmap(nullptr, length, PROT_READ, MAP_SHARED, file, static_cast<off_t>(begin));
    if (memory == MAP_FAILED) return false;
    const bool known = mincore(memory, length, resident.data()) == 0;
    munmap(memory, length);
    if (!known || std::any_of(resident.begin(), resident.begin() + static_cast<long>(length / page),
                              [](unsigned char byte) { return (byte & 1) != 0; }))
      return false;
  }
  return true;
}

class ColdReader final : public Reader {
 public:
  ColdReader(std::unique_ptr<Reader> inner, std::function<void(const std::string&)> warn)
      : inner_(std::move(inner)), warn_(std::move(warn)) {
    info_ = inner_->info();
    info_.in_place = false;
  }

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    Location location;
    if (!inner_->locate(index, location))
      throw DataError("the path is too long", "move the set to a shorter path");
    const base::OpenFile file = base::open_regular(location.path.data());
    const int descriptor = file.descriptor.get();
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);  // no readahead
    if (throw_out(descriptor, file.size, location)) {
      proven_.fetch_add(1, std::memory_order_relaxed);
    } else {
      resident_.fetch_add(1, std::memory_order_relaxed);
      std::call_once(warned_, [&] {
        if (warn_)
          warn_(
              fmt::format("data.cache=cold: {} stays in memory: its file system does not let go "
                          "of it, or another program uses it; such reads are counted as resident",
                          base::printable(location.path.data())));
      });
    }
    return base::read_located(location, descriptor, scratch);
  }
  std::string name(std::uint64_t index) const override { return inner_->name(index); }
  bool locate(std::uint64_t index, Location& location) const override {
    return inner_->locate(index, location);
  }
  ColdCounts cold() const override { return {proven_.load(), resident_.load()}; }

 private:
  static bool throw_out(int file, std::uint64_t size, const Location& location) {
    const Pages pages = pages_of(location, 0);
    evict(file, pages);
    if (is_cold(file, size, pages)) return true;
    // Writes recent changes to disk first, as dirty pages cannot be evicted. Folios are up to 2 MiB
    // large.
    fdatasync(file);
    evict(file, pages_of(location, std::uint64_t{2} << 20));
    return is_cold(file, size, pages);
  }

  std::unique_ptr<Reader> inner_;
  std::function<void(const std::string&)> warn_;
  mutable std::once_flag warned_;
  mutable std::atomic<std::uint64_t> proven_{0};
  mutable std::atomic<std::uint64_t> resident_{0};
};

}  // namespace

std::unique_ptr<Reader> read_cold(std::unique_ptr<Reader> reader,
                                  std::function<void(const std::string&)> warn) {
  Location location;
  if (!reader->locate(0, location))
    throw UsageError(fmt::format("data.cache=cold: the samples of {} do not lie in a file as they "
                                 "are (reader {})",
                                 reader->info().path, reader->info().reader),
                     "unpack .gz files first; data.storage.* emulates a disk for any reader");
  return std::make_unique<ColdReader>(std::move(reader), std::move(warn));
}

}  // namespace millrace::pipeline
