// Grants memory in the order in which batches are consumed.
#include "pipeline/loader/memory_budget.h"

#include <algorithm>

namespace millrace::pipeline {

std::uint64_t MemoryBudget::acquire(std::uint64_t bytes, Turn place) {
  bytes = std::min(bytes, bytes_);
  std::unique_lock lock(mutex_);
  waiting_.push_back(place);
  changed_.wait(lock, [&] {
    return stopped_ || (used_ + bytes <= bytes_ &&
                        *std::min_element(waiting_.begin(), waiting_.end()) == place);
  });
  std::erase(waiting_, place);
  if (stopped_) return 0;
  used_ += bytes;
  if (!waiting_.empty()) changed_.notify_all();  // the next in order may fit as well
  return bytes;
}

void MemoryBudget::release(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  if (!waiting_.empty()) changed_.notify_all();
}

std::size_t MemoryBudget::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

void MemoryBudget::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace millrace::pipeline
