// Copies each sample into one reserved mapping on its first read.
#include "pipeline/readers/ram_reader.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "base/mapped_guard.h"
#include "millrace/buffer.h"
#include "millrace/error.h"

namespace millrace::pipeline {
namespace {

/// Bytes that the caches of this process may still allocate.
std::atomic<std::uint64_t> g_promised{0};

class RamReader final : public Reader {
 public:
  explicit RamReader(std::unique_ptr<Reader> inner)
      : inner_(std::move(inner)), entries_(inner_->info().count) {
    info_ = inner_->info();
    const std::uint64_t promised = g_promised.load();
    const std::uint64_t free = free_memory();
    if (info_.bytes > free - std::min(free, promised))
      throw UsageError(
          fmt::format("data.cache=ram: {} of {} takes {:.1f} MB, and {:.1f} MB are free",
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
    Entry& entry = entries_[index];
    if (entry.state.load(std::memory_order_acquire) == State::held)
      return {{memory_ + entry.offset, entry.size}, entry.label, true};
    const std::uint64_t faults = base::mapped_faults();
    const Sample sample = inner_->read(index, scratch);
    State expected = State::missing;
    if (!entry.state.compare_exchange_strong(expected, State::filling, std::memory_order_relaxed))
      return sample;  // another thread keeps it
    const std::size_t size = sample.bytes.size();
    const std::uint64_t offset = used_.fetch_add(size, std::memory_order_relaxed);
    if (offset + size > info_.bytes) return sample;  // files have grown since they were listed
    std::copy(sample.bytes.begin(), sample.bytes.end(), memory_ + offset);
    if (base::mapped_faults() != faults) return inner_->read(index, scratch);  // zeros were copied
    entry.offset = offset;
    entry.size = static_cast<std::uint32_t>(size);
    entry.label = static_cast<std::int32_t>(sample.label);
    entry.state.store(State::held, std::memory_order_release);
    return sample;
  }
  std::string name(std::uint64_t index) const override { return inner_->name(index); }
  bool locate(std::uint64_t index, Location& location) const override {
    return inner_->locate(index, location);
  }
  ColdCounts cold() const override { return inner_->cold(); }

 private:
  enum class State : std::uint8_t { missing, filling, held };
  struct Entry {
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
    std::int32_t label = 0;
    std::atomic<State> state{State::missing};
  };

  std::unique_ptr<Reader> inner_;
  mutable std::vector<Entry> entries_;
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

std::unique_ptr<Reader> keep_in_ram(std::unique_ptr<Reader> reader) {
  if (reader->info().bytes == 0)
    throw UsageError(fmt::format("data.cache=ram: reader {} doesn't say how large {} is",
                                 reader->info().reader, reader->info().path),
                     "use data.cache=os");
  return std::make_unique<RamReader>(std::move(reader));
}

}  // namespace millrace::pipeline
