// Allocates slots of ordinary memory, and keeps released ones.
#include "pipeline/loader/slot_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "millrace/buffer.h"

namespace millrace::pipeline {

namespace {

/// Requests pages of 2 MiB, so that the kernel clears a slot in a few steps instead of thousands,
/// and writes miss fewer address translations. Covers whole large pages only, so memory use does
/// not grow.
void use_large_pages(std::uint8_t* memory, std::size_t size) {
  constexpr std::size_t kLarge = 2 << 20;
  const std::size_t before = (kLarge - reinterpret_cast<std::uintptr_t>(memory) % kLarge) % kLarge;
  if (size < before + kLarge) return;
  madvise(memory + before, (size - before) / kLarge * kLarge, MADV_HUGEPAGE);  // best effort
}

}  // namespace

KeptMemory::~KeptMemory() {
  for (const Block& block : unused_) {
    if (from_)
      from_->release(block.memory, block.size);
    else
      std::free(block.memory);
  }
}

void* KeptMemory::allocate(std::size_t size) {
  const std::lock_guard lock(mutex_);
  const auto fits = std::find_if(unused_.begin(), unused_.end(),
                                 [size](const Block& block) { return block.size == size; });
  if (fits != unused_.end()) {
    void* const memory = fits->memory;
    unused_.erase(fits);
    return memory;
  }
  unused_.reserve(blocks_ + 1);  // release() must not fail
  void* const memory = from_ ? from_->allocate(size) : std::aligned_alloc(64, size);
  if (memory == nullptr) throw std::bad_alloc();
  if (from_ == nullptr) use_large_pages(static_cast<std::uint8_t*>(memory), size);
  ++blocks_;
  return memory;
}

void KeptMemory::release(void* memory, std::size_t size) noexcept {
  const std::lock_guard lock(mutex_);
  unused_.push_back({memory, size});
}

SlotBlock::SlotBlock(std::shared_ptr<SlotMemory> from, std::size_t size)
    : from_(std::move(from)), size_((size + kTailSlack + 63) / 64 * 64) {
  data_ = from_ ? from_->allocate(size_) : std::aligned_alloc(64, size_);
  if (data_ == nullptr) throw std::bad_alloc();
  if (from_ == nullptr) use_large_pages(data(), size_);
}

SlotBlock::~SlotBlock() {
  if (data_ == nullptr) return;
  if (from_) {
    from_->release(data_, size_);
  } else {
    std::free(data_);
  }
}

}  // namespace millrace::pipeline
