// Lends blocks to slots and detached batches, and takes them back.
#include "pipeline/loader/batch_pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "pipeline/targets/object_list.h"

namespace millrace::pipeline {

namespace {

/// Exchanges the memory of two batches of one shape.
void swap_memory(BatchContents& a, BatchContents& b) {
  std::swap(a.memory, b.memory);
  std::swap(a.samples, b.samples);
  std::swap(a.labels, b.labels);
  std::swap(a.probabilities, b.probabilities);
  std::swap(a.masks, b.masks);
  a.indices.swap(b.indices);
  a.warps.swap(b.warps);
  std::swap(a.objects, b.objects);
  std::swap(a.members, b.members);
}

void copy_memory(const BatchContents& from, BatchContents& to) {
  std::memcpy(to.memory.data(), from.memory.data(), to.memory.size());
  to.indices = from.indices;
  to.warps = from.warps;
  to.objects = from.objects;
  to.members = from.members;
}

}  // namespace

BatchPool::BatchPool(std::shared_ptr<SlotMemory> from, std::size_t slots, const BatchShape& shape,
                     std::size_t most)
    : from_(std::move(from)), shape_(shape), most_(most), waiting_(slots) {
  unused_.reserve(slots + most_);
  empty_.reserve(slots);
  for (std::size_t i = 0; i < slots; ++i) unused_.push_back(make());
  if (slots > 0) block_bytes_ = unused_.front()->memory.size();
}

std::unique_ptr<BatchContents> BatchPool::make() const {
  auto contents = std::make_unique<BatchContents>();
  contents->reserve(from_, shape_);
  return contents;
}

void BatchPool::lend(BatchContents& slot) noexcept {
  const std::lock_guard lock(mutex_);
  if (slot.has_memory()) return;  // another worker was first
  swap_memory(slot, *unused_.back());
  clear(slot.objects);
  --waiting_;
  empty_.push_back(std::move(unused_.back()));
  unused_.pop_back();
}

void BatchPool::take_back(BatchContents& slot) noexcept {
  const std::lock_guard lock(mutex_);
  swap_memory(slot, *empty_.back());
  ++waiting_;
  unused_.push_back(std::move(empty_.back()));
  empty_.pop_back();
}

std::shared_ptr<const BatchContents> BatchPool::detach(BatchContents& slot, bool copy) {
  std::unique_lock lock(mutex_);
  if (unused_.size() <= waiting_) {  // all belong to slots
    lock.unlock();
    std::unique_ptr<BatchContents> more = make();
    allocated_.fetch_add(1, std::memory_order_relaxed);
    lock.lock();
    unused_.insert(unused_.begin(), std::move(more));  // in no cache, so it is used last
  }
  auto& list = copy ? unused_ : empty_;
  std::unique_ptr<BatchContents> own = std::move(list.back());
  list.pop_back();
  if (!copy) ++waiting_;
  lock.unlock();
  // If this throws, put() restores what was counted, and the slot is as it was.
  const std::shared_ptr<BatchContents> lent(
      own.release(), [pool = shared_from_this()](BatchContents* back) noexcept {
        pool->put(std::unique_ptr<BatchContents>(back));
      });
  if (copy) {
    copy_memory(slot, *lent);
  } else {
    swap_memory(slot, *lent);
  }
  lent->sample_bytes = slot.sample_bytes;
  lent->mask_bytes = slot.mask_bytes;
  lent->size = slot.size;
  lent->id = slot.id;
  lent->valid = slot.valid;
  return lent;
}

void BatchPool::put(std::unique_ptr<BatchContents> contents) noexcept {
  const std::lock_guard lock(mutex_);
  if (!contents->has_memory()) {
    --waiting_;
    empty_.push_back(std::move(contents));
  } else if (unused_.size() < waiting_ + most_) {
    unused_.push_back(std::move(contents));
  }
}

}  // namespace millrace::pipeline
