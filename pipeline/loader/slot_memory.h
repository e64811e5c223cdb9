// Allocators of batch slots, and blocks from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/private_api.h"

namespace millrace::pipeline {

/// Allocator of batch slots. The pipeline knows no device: a device that copies faster from its own
/// kind of memory (page-locked, for CUDA) provides it through this interface.
class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  /// Returns at least `size` bytes, 64-byte aligned. Throws RunError if there is no memory.
  virtual void* allocate(std::size_t size) = 0;
  /// Frees what allocate(size) returned. Callable from any thread.
  virtual void release(void* memory, std::size_t size) noexcept = 0;
};

/// Keeps released blocks for later loaders, so that loaders that follow each other, as those of
/// evaluations do, allocate once. Frees them with itself.
class MILLRACE_PRIVATE_API KeptMemory final : public SlotMemory {
 public:
  /// Allocates through `from`; null: ordinary host memory.
  explicit KeptMemory(std::shared_ptr<SlotMemory> from) : from_(std::move(from)) {}
  ~KeptMemory() override;
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  void* allocate(std::size_t size) override;
  void release(void* memory, std::size_t size) noexcept override;

 private:
  struct Block {
    void* memory;
    std::size_t size;
  };

  const std::shared_ptr<SlotMemory> from_;
  std::mutex mutex_;
  std::vector<Block> unused_;
  std::size_t blocks_ = 0;  ///< allocated so far; unused_ has room for all of them
};

/// Owns a block from a SlotMemory or, without one, of ordinary host memory.
class SlotBlock {
 public:
  SlotBlock() = default;
  /// Allocates `size` bytes; `from` may be null. kTailSlack bytes behind the last may be read.
  SlotBlock(std::shared_ptr<SlotMemory> from, std::size_t size);
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
  ~SlotBlock();

  std::uint8_t* data() const { return static_cast<std::uint8_t*>(data_); }
  std::size_t size() const { return size_; }

 private:
  std::shared_ptr<SlotMemory> from_;
  std::size_t size_ = 0;
  void* data_ = nullptr;
};

}  // namespace millrace::pipeline
