// Memory of slots and of batches that leave the loader. A slot has a block from its first sample on
// until its batch is given back, and a detached batch takes the block along. The block that was
// returned last is used first, because its lines are likely to be in a cache still: a loop that
// keeps up with its workers has two or three blocks in use, whatever the number of slots.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "pipeline/loader/slot.h"

namespace millrace::pipeline {

/// Recycles blocks of one shape. Thread-safe; locked when a batch is begun, detached and given
/// back. Detached batches keep the pool alive.
class BatchPool : public std::enable_shared_from_this<BatchPool> {
 public:
  /// Allocates a block for each of `slots` slots through `from`. Keeps at most `most` unused blocks
  /// beside those.
  BatchPool(std::shared_ptr<SlotMemory> from, std::size_t slots, const BatchShape& shape,
            std::size_t most);

  /// Gives a slot the block that was returned last, unless it has one.
  void lend(BatchContents& slot) noexcept;
  /// Takes a slot's block back.
  void take_back(BatchContents& slot) noexcept;
  /// Returns what a slot holds and leaves it without memory; with `copy`, copies it. Allocates if
  /// there would be fewer blocks than slots without one.
  std::shared_ptr<const BatchContents> detach(BatchContents& slot, bool copy);
  /// Returns the number of blocks that were allocated beside those of the slots.
  std::uint64_t allocated() const { return allocated_.load(std::memory_order_relaxed); }
  std::size_t block_bytes() const { return block_bytes_; }

 private:
  std::unique_ptr<BatchContents> make() const;
  void put(std::unique_ptr<BatchContents> contents) noexcept;

  const std::shared_ptr<SlotMemory> from_;
  const BatchShape shape_;
  const std::size_t most_;
  std::size_t block_bytes_ = 0;
  std::atomic<std::uint64_t> allocated_{0};
  std::mutex mutex_;
  std::size_t waiting_;  ///< slots without a block; as many of `unused_` are theirs
  std::vector<std::unique_ptr<BatchContents>> unused_;  ///< with memory, the last returned behind
  std::vector<std::unique_ptr<BatchContents>> empty_;   ///< without memory
};

}  // namespace millrace::pipeline
