// Lends blocks to detached batches and takes them back.
#include "pipeline/loader/batch_pool.h"

#include <cstring>
#include <utility>

namespace millrace::pipeline {
namespace {

void copy_batch(const BatchContents& from, BatchContents& to) {
  std::memcpy(to.memory.data(), from.memory.data(), to.memory.size());
  to.indices = from.indices;
  to.id = from.id;
  to.valid = from.valid;
}

}  // namespace

std::shared_ptr<const BatchContents> BatchPool::exchange(BatchContents& contents, bool copy) {
  std::unique_ptr<BatchContents> other = take();
  // Allocates before the exchange, so that a failure leaves the slot as it is.
  const std::shared_ptr<BatchContents> lent(
      other.release(), [pool = shared_from_this()](BatchContents* back) noexcept {
        pool->put(std::unique_ptr<BatchContents>(back));
      });
  if (copy) {
    copy_batch(contents, *lent);
  } else {
    std::swap(contents, *lent);
  }
  return lent;
}

std::unique_ptr<BatchContents> BatchPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!unused_.empty()) {
      std::unique_ptr<BatchContents> contents = std::move(unused_.back());
      unused_.pop_back();
      return contents;
    }
  }
  auto contents = std::make_unique<BatchContents>();
  contents->reserve(from_, samples_, sample_bytes_, classes_);
  allocated_.fetch_add(1, std::memory_order_relaxed);
  return contents;
}

void BatchPool::put(std::unique_ptr<BatchContents> contents) noexcept {
  const std::lock_guard lock(mutex_);
  if (unused_.size() < most_) unused_.push_back(std::move(contents));
}

}  // namespace millrace::pipeline
