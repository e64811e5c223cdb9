// Memory of batches: slots, blocks of detached batches, and the budget of large samples.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "measure/batch_history.h"
#include "millrace/annotations.h"
#include "millrace/buffer.h"
#include "millrace/reader.h"
#include "millrace/transform.h"
#include "pipeline/loader/member_store.h"

namespace millrace::pipeline {

/// Limits the memory that a loader's workers take together for large samples (bounded-memory
/// contract). It only delays: a sample waits until earlier ones have returned enough memory, and is
/// never rejected.
class MemoryBudget {
 public:
  /// Samples up to this size are not counted, so the usual ones skip the budget.
  static constexpr std::uint64_t kSmall = 16 << 20;

  /// Position of a sample in the order in which batches are consumed.
  struct Turn {
    std::uint64_t batch = 0;
    std::int64_t sample = 0;  ///< position in the batch
    auto operator<=>(const Turn&) const = default;
  };

  /// At most `waiters` threads may call acquire() at a time.
  MemoryBudget(std::uint64_t bytes, std::size_t waiters) : bytes_(bytes) {
    waiting_.reserve(waiters);
  }

  /// Takes `bytes` from the budget, or all of it if it is smaller, once they are free and no
  /// earlier sample waits: the batch that is consumed next comes first. Returns the number to pass
  /// to release(), or 0 after stop(). A thread must not hold one sample's bytes while it asks for
  /// another's.
  std::uint64_t acquire(std::uint64_t bytes, Turn place);
  void release(std::uint64_t bytes);
  /// Makes every acquire() return 0, waiting ones included.
  void stop();
  /// Returns the number of threads inside acquire().
  std::size_t waiting() const;

 private:
  const std::uint64_t bytes_;
  mutable std::mutex mutex_;  ///< held for bookkeeping only
  std::condition_variable changed_;
  std::uint64_t used_ = 0;
  std::vector<Turn> waiting_;
  bool stopped_ = false;
};

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

// Batch slots: memory that batches are written into in place, recycled from batch to batch
// (zero-copy contract), and the event that hands a finished one to the consumer.

/// Identifies the batch in a slot.
struct BatchId {
  std::uint64_t ordinal = 0;  ///< counted over all epochs
  std::uint32_t epoch = 0;
  std::uint64_t index = 0;  ///< index in the epoch
  std::uint64_t first = 0;  ///< position in the epoch of the rank's first sample
  std::int64_t count = 0;   ///< samples that the rank's slice should have
  std::int64_t global = 0;  ///< samples that all ranks' slices should have
};

/// A sample that an I/O thread has read.
struct Fetched {
  Sample sample;
  Buffer bytes;  ///< memory that the sample may use
  std::span<const std::uint8_t> mask;
  Buffer mask_bytes;
  std::exception_ptr error;
};

/// A failed sample that has not been reported yet.
struct Failed {
  std::int64_t place = 0;  ///< position in the batch
  std::uint64_t sample = 0;
  std::string name, reason;
};

/// Sizes of the parts of a batch's memory.
struct BatchShape {
  std::size_t samples = 0;
  std::size_t sample_bytes = 0;
  std::size_t mask_bytes = 0;  ///< per sample; 0: no masks
  std::size_t classes = 0;     ///< length of a row of probabilities
  bool warps = false;
  std::size_t members = 0;  ///< names of other members per sample
};

/// A batch and its memory. Batch::detach() takes it out of the slot.
struct BatchContents {
  void reserve(const std::shared_ptr<SlotMemory>& from, const BatchShape& shape);
  bool has_memory() const { return samples != nullptr; }

  /// Block of the next four, so that a device copies the whole batch the same way.
  SlotBlock memory;
  std::uint8_t* samples = nullptr;  ///< one after the other
  std::span<std::int64_t> labels;
  std::span<float> probabilities;      ///< one row of classes per sample, if ops mix labels
  std::span<std::uint8_t> masks;       ///< one per sample, if the data set has any
  std::vector<std::uint64_t> indices;  ///< index of each sample in the data set
  std::vector<float> warps;            ///< nine numbers per sample; empty unless they are asked for
  Objects objects;                     ///< once finished; its memory is kept from batch to batch
  MemberStore members;
  std::size_t classes = 0;       ///< length of a row of probabilities; remains without memory
  std::size_t sample_bytes = 0;  ///< of one sample of this batch; at most those of its memory
  std::size_t mask_bytes = 0;    ///< likewise
  Size size;                     ///< of this batch's samples
  BatchId id;
  std::int64_t valid = 0;  ///< samples present, once finished
};

struct Slot : BatchContents {
  const Transform* transform = nullptr;  ///< of the batch's epoch
  std::atomic<bool> backed{false};  ///< has memory: set by the worker that begins its first range
  std::int64_t grain = 1;           ///< samples per range in this batch
  std::vector<measure::RangeHistory>
      units;  ///< history per range, written by the worker that has it
  /// Times of BatchHistory.
  base::Clock::Ticks asked = 0, opened = 0, made = 0, got = 0, core_wait = 0;
  std::int64_t kept = 0;  ///< samples in memory that can be handed out again (cached)
  std::atomic<std::int64_t> missing{0};  ///< samples that no worker has finished yet
  std::atomic<std::uint32_t> ready{0};   ///< 1: finished, and with the consumer until it is freed
  std::atomic<std::uint32_t> freed{1};   ///< orders the consumer's last read before the next write
  std::vector<Objects> range_objects;    ///< objects of each range, if the data set has any
  std::vector<Fetched> fetched;          ///< one per sample with I/O threads, otherwise empty
  /// Orders the I/O threads' writes before the workers' reads.
  std::atomic<std::uint64_t> fetched_runs{0};

  std::mutex failing;                ///< guards the members below; locked only if a sample fails
  std::vector<std::int64_t> failed;  ///< positions in the batch of samples left out
  std::vector<Failed> failures;      ///< in any order
  std::exception_ptr error;          ///< error of the first failed position (on_error=fail)
  std::int64_t error_place = -1;
};

/// Lets one consumer wait for a slot's `ready`, which many workers set.
class ReadyEvent {
 public:
  /// Returns once `ready` is 1, one of the flags is set, or `poll` returns true. `outer` may be
  /// null and `poll` empty; both are polled every 100 ms, because nothing wakes the consumer for
  /// them.
  void wait(std::atomic<std::uint32_t>& ready, const std::atomic<bool>& stopped,
            const std::atomic<bool>* outer, const std::function<bool()>& poll);
  /// Sets `ready` and wakes the consumer if it sleeps.
  void set(std::atomic<std::uint32_t>& ready);
  /// Wakes the consumer, whatever it waits for.
  void wake(std::vector<Slot>& slots);

 private:
  /// Waits for `ready` without a sleep, briefly and only where that has saved sleeps before.
  bool spin(const std::atomic<std::uint32_t>& ready);

  std::atomic<bool> sleeping_{false};
  // Only the consumer uses the next two.
  double in_time_ = 0;  ///< share of the last spins that saved a sleep
  unsigned waits_ = 0;  ///< for which spinning was not worth it
};

// Contents of batches with loader.mode=synthetic: noise of the right shape, type and labels.

/// Fills a slot with `samples` samples. Elements have random signs and mantissas, and magnitudes
/// from 1/8 up to 2 (u8: any byte); labels count through the classes. Equal seeds give equal
/// contents.
void fill_with_noise(Slot& slot, std::uint64_t seed, std::size_t samples,
                     const Transform& transform, const DatasetInfo& dataset);

// Memory of slots and of batches that leave the loader. A slot has a block from its first sample on
// until its batch is given back, and a detached batch takes the block along. The block that was
// returned last is used first, because its lines are likely to be in a cache still: a loop that
// keeps up with its workers has two or three blocks in use, whatever the number of slots.

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
