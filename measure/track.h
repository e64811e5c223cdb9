// A buffer of records with one writer, so that no thread waits for another.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace millrace::measure {

/// Records of one track, in the order in which they ended. One thread at a time writes; any thread
/// may read meanwhile. Memory is bounded: when it is full, later records are counted and dropped.
template <class Record>
class Track {
 public:
  explicit Track(std::size_t capacity)
      : capacity_(capacity),
        records_(static_cast<Record*>(std::malloc(capacity * sizeof(Record)))) {
    static_assert(std::is_trivially_copyable_v<Record> && std::is_trivially_destructible_v<Record>);
    // The kernel allocates pages as they are written.
    if (records_ == nullptr) throw std::bad_alloc();
  }

  void add(const Record& record) {
    const std::size_t size = size_.load(std::memory_order_relaxed);
    if (size == capacity_) {
      left_out_.store(left_out_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return;
    }
    new (records_.get() + size) Record(record);
    size_.store(size + 1, std::memory_order_release);
  }
  std::span<const Record> records() const {
    return {records_.get(), size_.load(std::memory_order_acquire)};
  }
  std::uint64_t left_out() const { return left_out_.load(std::memory_order_relaxed); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::size_t capacity_;
  std::unique_ptr<Record, Free> records_;
  std::atomic<std::size_t> size_{0};
  std::atomic<std::uint64_t> left_out_{0};
};

}  // namespace millrace::measure
