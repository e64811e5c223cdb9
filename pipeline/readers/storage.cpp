// Wraps readers for data.cache=ram and cold, and emulates a disk.

#include "pipeline/readers/storage.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <ctime>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/located_sample.h"
#include "base/mapped_file_guard.h"
#include "base/open_file.h"
#include "base/text.h"
#include "millrace/buffer.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"

namespace millrace::pipeline {

// Copies each sample into one reserved mapping on its first read.
namespace {

/// Bytes that the caches of this process may still allocate.
std::atomic<std::uint64_t> g_promised{0};

class RamReader final : public Reader {
 public:
  explicit RamReader(std::unique_ptr<Reader> inner)
      : inner_(std::move(inner)),
        entries_(inner_->info().count),
        masks_(inner_->info().masks ? inner_->info().count : 0) {
    info_ = inner_->info();
    const std::uint64_t promised = g_promised.load();
    const std::uint64_t free = free_memory();
    if (info_.bytes > free - std::min(free, promised))
      throw UsageError(
          fmt::format("data.cache=ram: {} of {} takes {:.1f} MB, but only {:.1f} MB are free",
                      info_.path, info_.split, static_cast<double>(info_.bytes) / 1e6,
                      static_cast<double>(free - std::min(free, promised)) / 1e6),
          "use data.cache=os: the system keeps as much of the set as fits");
    size_ = info_.bytes + kTailSlack;
    // The kernel allocates pages when they are first written.
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::uint8_t*>(memory);
    g_promised += info_.bytes;
  }
  ~RamReader() override {
    munmap(memory_, size_);
    g_promised -= info_.bytes;
  }
  RamReader(const RamReader&) = delete;
  RamReader& operator=(const RamReader&) = delete;

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    return kept(entries_[index], [&] { return inner_->read(index, scratch); });
  }
  std::span<const std::uint8_t> mask(std::uint64_t index, Buffer& scratch) const override {
    return kept(masks_[index], [&] { return Sample{inner_->mask(index, scratch)}; }).bytes;
  }
  std::string name(std::uint64_t index) const override { return inner_->name(index); }
  std::int64_t label(std::uint64_t index) const override { return inner_->label(index); }
  bool locate(std::uint64_t index, Location& location) const override {
    return inner_->locate(index, location);
  }
  std::uint64_t lookahead() const override { return inner_->lookahead(); }
  void expect(std::uint64_t index) const override {
    if (entries_[index].state.load(std::memory_order_relaxed) != State::held) inner_->expect(index);
  }
  const Targets* targets() const override { return inner_->targets(); }
  const Annotations* annotations() const override { return inner_->annotations(); }
  ColdCounts cold() const override { return inner_->cold(); }

 private:
  enum class State : std::uint8_t { missing, filling, held };
  struct Entry {
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
    std::int32_t label = 0;
    std::atomic<State> state{State::missing};
  };

  /// Returns what an entry holds, or what `read` returns, which the entry keeps if it can.
  template <class Read>
  Sample kept(Entry& entry, const Read& read) const {
    if (entry.state.load(std::memory_order_acquire) == State::held)
      return {{memory_ + entry.offset, entry.size}, entry.label, true};
    const std::uint64_t faults = base::mapped_faults();
    const Sample sample = read();
    State expected = State::missing;
    if (!entry.state.compare_exchange_strong(expected, State::filling, std::memory_order_relaxed))
      return sample;  // another thread keeps it
    const std::size_t size = sample.bytes.size();
    const std::uint64_t offset = used_.fetch_add(size, std::memory_order_relaxed);
    if (offset + size > info_.bytes) return sample;  // files have grown since they were listed
    std::copy(sample.bytes.begin(), sample.bytes.end(), memory_ + offset);
    if (base::mapped_faults() != faults) return read();  // zeros were copied
    entry.offset = offset;
    entry.size = static_cast<std::uint32_t>(size);
    entry.label = static_cast<std::int32_t>(sample.label);
    entry.state.store(State::held, std::memory_order_release);
    return sample;
  }

  std::unique_ptr<Reader> inner_;
  mutable std::vector<Entry> entries_;
  mutable std::vector<Entry> masks_;
  std::uint8_t* memory_ = nullptr;
  std::size_t size_ = 0;
  mutable std::atomic<std::uint64_t> used_{0};
};

std::uint64_t number_in(const char* path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? number : std::numeric_limits<std::uint64_t>::max();  // "max": no limit
}

}  // namespace

std::uint64_t free_memory() {
  std::uint64_t available = std::numeric_limits<std::uint64_t>::max();
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t kib = 0;
    if (words >> name >> kib && name == "MemAvailable:") available = kib * 1024;
  }
  const std::uint64_t most = number_in("/sys/fs/cgroup/memory.max");
  const std::uint64_t used = number_in("/sys/fs/cgroup/memory.current");
  if (most != std::numeric_limits<std::uint64_t>::max())
    available = std::min(available, most - std::min(most, used));
  return available;
}

std::unique_ptr<Reader> make_ram_reader(std::unique_ptr<Reader> reader) {
  if (reader->info().bytes == 0)
    throw UsageError(fmt::format("data.cache=ram: reader {} doesn't say how large {} is",
                                 reader->info().reader, reader->info().path),
                     "use data.cache=os");
  return std::make_unique<RamReader>(std::move(reader));
}

// Evicts pages with posix_fadvise and checks them with mincore.
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
    return read_cold(location_of(*inner_, index), scratch);
  }
  std::span<const std::uint8_t> mask(std::uint64_t index, Buffer& scratch) const override {
    Location location;
    if (!inner_->locate_mask(index, location)) return inner_->mask(index, scratch);
    try {
      return read_cold(location, scratch).bytes;
    } catch (const DataError& error) {
      rethrow_for_mask(error);
    }
  }
  std::string name(std::uint64_t index) const override { return inner_->name(index); }
  std::int64_t label(std::uint64_t index) const override { return inner_->label(index); }
  bool locate(std::uint64_t index, Location& location) const override {
    return inner_->locate(index, location);
  }
  const Targets* targets() const override { return inner_->targets(); }
  const Annotations* annotations() const override { return inner_->annotations(); }
  ColdCounts cold() const override { return {proven_.load(), resident_.load()}; }

 private:
  Sample read_cold(const Location& location, Buffer& scratch) const {
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

std::unique_ptr<Reader> make_cold_reader(std::unique_ptr<Reader> reader,
                                         std::function<void(const std::string&)> warn) {
  Location location;
  if (!reader->locate(0, location))
    throw UsageError(fmt::format("data.cache=cold: the samples of {} do not lie in a file as they "
                                 "are (reader {})",
                                 reader->info().path, reader->info().reader),
                     "unpack .gz files first; data.storage.* emulates a disk for any reader");
  return std::make_unique<ColdReader>(std::move(reader), std::move(warn));
}

// Computes deadlines of emulated reads and sleeps until them.

namespace {

/// Shortest wait that is slept. After a shorter one the thread runs ahead of its lane, and its next
/// wait is longer.
constexpr std::int64_t kShortestSleep = 100'000;
/// Longest sleep at a time, so that a stop is seen within it.
constexpr std::int64_t kLongestSleep = 20'000'000;
/// Largest lateness that is compensated; a thread may have been stopped by a debugger.
constexpr std::int64_t kMaxLate = 10'000'000;

void sleep_until(std::int64_t ns) {
  const timespec time{static_cast<std::time_t>(ns / 1'000'000'000),
                      static_cast<long>(ns % 1'000'000'000)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);  // a signal only ends it early
}

}  // namespace

std::int64_t StorageModel::finish_ns(std::int64_t arrival_ns, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (origin_ns_ < 0) origin_ns_ = arrival_ns;
  double time = static_cast<double>(arrival_ns - origin_ns_);
  if (options_.requests_per_s > 0) {
    time = std::max(time, next_request_);
    next_request_ = time + 1e9 / options_.requests_per_s;
    time = next_request_;
  }
  time += 1e9 * options_.latency_s;
  if (options_.bytes_per_s > 0) {
    time = std::max(time, bus_free_) + 1e9 * static_cast<double>(bytes) / options_.bytes_per_s;
    bus_free_ = time;
  }
  const std::int64_t finish = origin_ns_ + static_cast<std::int64_t>(std::llround(time));
  if (track_ != nullptr) track_->add({arrival_ns, finish, bytes});
  return finish;
}

void StorageModel::serve(std::int64_t begin_ns, std::uint64_t bytes, Lane& lane,
                         const std::atomic<bool>& stop) {
  const std::int64_t deadline = finish_ns(begin_ns - std::min(lane.late_ns, kMaxLate), bytes);
  std::int64_t now = base::Clock::steady_ns();
  while (deadline - now >= kShortestSleep && !stop.load(std::memory_order_relaxed)) {
    sleep_until(std::min(deadline, now + kLongestSleep));
    now = base::Clock::steady_ns();
  }
  lane.late_ns = now - deadline;
}

}  // namespace millrace::pipeline
