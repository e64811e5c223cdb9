// The memory that workers take together for large samples.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

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

}  // namespace millrace::pipeline
