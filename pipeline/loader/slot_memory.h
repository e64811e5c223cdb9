// Allocator of batch slots. The pipeline knows no device: a device that copies faster from its own
// kind of memory (page-locked, for CUDA) provides it through this interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "millrace/buffer.h"

namespace millrace::pipeline {

class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  /// Returns at least `size` bytes, 64-byte aligned. Throws RunError if there is no memory.
  virtual void* allocate(std::size_t size) = 0;
  /// Frees what allocate(size) returned. Callable from any thread.
  virtual void release(void* memory, std::size_t size) noexcept = 0;
};

/// Owns a block from a SlotMemory or, without one, of ordinary host memory.
class SlotBlock {
 public:
  SlotBlock() = default;
  /// Allocates `size` bytes; `from` may be null. kTailSlack bytes behind the last may be read.
  SlotBlock(std::shared_ptr<SlotMemory> from, std::size_t size)
      : from_(std::move(from)), size_((size + kTailSlack + 63) / 64 * 64) {
    data_ = from_ ? from_->allocate(size_) : std::aligned_alloc(64, size_);
    if (data_ == nullptr) throw std::bad_alloc();
  }
  SlotBlock(SlotBlock&& other) noexcept
      : from_(std::move(other.from_)),
        size_(std::exchange(other.size_, 0)),
        data_(std::exchange(other.data_, nullptr)) {}
  SlotBlock& operator=(SlotBlock&& other) noexcept {
    std::swap(from_, other.from_);
    std::swap(size_, other.size_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~SlotBlock() {
    if (data_ == nullptr) return;
    if (from_) {
      from_->release(data_, size_);
    } else {
      std::free(data_);
    }
  }

  std::uint8_t* data() const { return static_cast<std::uint8_t*>(data_); }
  std::size_t size() const { return size_; }

 private:
  std::shared_ptr<SlotMemory> from_;
  std::size_t size_ = 0;
  void* data_ = nullptr;
};

}  // namespace millrace::pipeline
