// Memory for batches that leave the loader: a detached batch takes its block along, and its slot
// gets another one from here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "pipeline/loader/slots.h"

namespace millrace::pipeline {

/// Recycles blocks of one shape. Thread-safe; locked once per detached batch and once per release,
/// never by a worker. Lent blocks keep the pool alive.
class BatchPool : public std::enable_shared_from_this<BatchPool> {
 public:
  /// Allocates through `from`, as for `like`. Keeps at most `most` unused blocks.
  BatchPool(std::shared_ptr<SlotMemory> from, const BatchContents& like, std::size_t most)
      : from_(std::move(from)),
        samples_(like.labels.size()),
        sample_bytes_(like.sample_bytes),
        classes_(like.classes),
        most_(most) {
    unused_.reserve(most_);
  }

  /// Returns what `contents` holds and leaves it with an unused block; with `copy`, copies it.
  std::shared_ptr<const BatchContents> exchange(BatchContents& contents, bool copy);
  /// Returns the number of blocks that were allocated so far.
  std::uint64_t allocated() const { return allocated_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<BatchContents> take();
  void put(std::unique_ptr<BatchContents> contents) noexcept;

  const std::shared_ptr<SlotMemory> from_;
  const std::size_t samples_, sample_bytes_, classes_, most_;
  std::atomic<std::uint64_t> allocated_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<BatchContents>> unused_;
};

}  // namespace millrace::pipeline
