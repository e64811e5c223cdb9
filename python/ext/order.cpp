// Checks and keeps the orders that a sampler in Python gives.
#include "python/ext/order.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <utility>

#include "millrace/error.h"

namespace millrace::python {

Order::Order(std::uint64_t samples, std::uint64_t epoch, std::uint64_t length)
    : samples_(samples), epoch_(epoch) {
  indices_->reserve(length);
}

void Order::extend(const nanobind::bytes& indices) {
  const std::size_t begin = indices_->size(), count = indices.size() / sizeof(std::int64_t);
  indices_->resize(begin + count);
  std::memcpy(indices_->data() + begin, indices.data(), count * sizeof(std::int64_t));
  for (std::size_t at = begin; at < begin + count; ++at)
    if ((*indices_)[at] >= samples_)  // as negative ones are
      throw UsageError(
          fmt::format("the sampler's index {} of epoch {} is {}, and the data set has "
                      "{} samples",
                      at, epoch_, static_cast<std::int64_t>((*indices_)[at]), samples_),
          "indices count from 0");
}

std::uint64_t Order::digest() const {
  return XXH3_64bits(indices_->data(), indices_->size() * sizeof(std::uint64_t));
}

OrderTable::OrderTable(const OrderTable& other) {
  const std::lock_guard lock(other.mutex_);
  lists_ = other.lists_;
}

OrderTable::List OrderTable::at(std::uint32_t epoch) {
  const std::lock_guard lock(mutex_);
  const auto found = lists_.find(epoch);
  if (found != lists_.end()) return found->second;
  closed_ = true;
  return nullptr;
}

bool OrderTable::holds(std::uint32_t epoch, const List& order) const {
  const std::lock_guard lock(mutex_);
  const auto found = lists_.find(epoch);
  return found != lists_.end() && found->second == order;
}

void OrderTable::add(std::uint32_t epoch, List order) {
  const std::lock_guard lock(mutex_);
  if (!closed_) lists_.emplace(epoch, std::move(order));
}

void OrderTable::forget_before(std::uint32_t epoch) {
  const std::lock_guard lock(mutex_);
  lists_.erase(lists_.begin(), lists_.lower_bound(epoch));
}

}  // namespace millrace::python
