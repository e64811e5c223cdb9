// Collects failures in an order that does not depend on the workers.
#include "pipeline/loader/batch_failures.h"

#include <algorithm>
#include <utility>

namespace millrace::pipeline {

void BatchFailures::clear() {
  left_out_.clear();
  all_.clear();
  error_ = nullptr;
  error_place_ = -1;
}

void BatchFailures::add(Failed failed) {
  const std::lock_guard lock(mutex_);
  all_.push_back(std::move(failed));
}

void BatchFailures::leave_out(std::int64_t place) {
  const std::lock_guard lock(mutex_);
  left_out_.push_back(place);
}

void BatchFailures::note_error(std::int64_t place, std::exception_ptr error) {
  // The earliest position wins, so that the message does not depend on the workers.
  const std::lock_guard lock(mutex_);
  if (error_place_ >= 0 && error_place_ <= place) return;
  error_place_ = place;
  error_ = std::move(error);
}

void BatchFailures::sort() {
  std::sort(left_out_.begin(), left_out_.end());
  // Attempts at one position are in order already.
  std::stable_sort(all_.begin(), all_.end(),
                   [](const Failed& a, const Failed& b) { return a.place < b.place; });
}

}  // namespace millrace::pipeline
