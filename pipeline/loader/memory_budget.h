// Memory that a loader's workers may take together for large samples. It only ever delays: a sample
// waits until those before it have given back enough, and is never refused.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace millrace::pipeline {

class MemoryBudget {
 public:
  /// Samples that take no more than this are not counted: the usual ones never come here.
  static constexpr std::uint64_t kSmall = 16 << 20;

  /// A sample's place in the order in which batches are consumed.
  struct Place {
    std::uint64_t batch = 0;
    std::int64_t sample = 0;  ///< in the batch
    auto operator<=>(const Place&) const = default;
  };

  /// `waiters`: most threads that call acquire().
  MemoryBudget(std::uint64_t bytes, std::size_t waiters) : bytes_(bytes) {
    waiting_.reserve(waiters);
  }

  /// Takes `bytes`, or all there are if they are fewer, once they are free and nobody earlier in
  /// the order waits: the batch that is consumed next comes first. Returns what release() has to
  /// give back, or 0 after stop(). A thread must not hold one sample's bytes while it asks for
  /// another's.
  std::uint64_t acquire(std::uint64_t bytes, Place place);
  void release(std::uint64_t bytes);
  /// Makes every acquire() return 0, those that wait included.
  void stop();
  /// Threads inside of acquire().
  std::size_t waiting() const;

 private:
  const std::uint64_t bytes_;
  mutable std::mutex mutex_;  ///< held for the bookkeeping alone
  std::condition_variable changed_;
  std::uint64_t used_ = 0;
  std::vector<Place> waiting_;
  bool stopped_ = false;
};

}  // namespace millrace::pipeline
