// Orders of samples that a sampler in Python gives: one list of indices per epoch.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace millrace::python {

/// The samples of one epoch, in order: 8 bytes each.
class Order {
 public:
  using Indices = std::vector<std::uint64_t>;

  /// Is empty, with memory for `length` indices into a data set of `samples`. Messages name the
  /// epoch.
  Order(std::uint64_t samples, std::uint64_t epoch, std::uint64_t length);

  /// Appends indices of 8 bytes each, with a sign. Throws UsageError for one that no sample has.
  void extend(const nanobind::bytes& indices);
  /// Returns a hash of the indices.
  std::uint64_t digest() const;
  std::uint64_t size() const { return indices_->size(); }
  const std::shared_ptr<Indices>& indices() const { return indices_; }

 private:
  std::uint64_t samples_, epoch_;
  std::shared_ptr<Indices> indices_ = std::make_shared<Indices>();
};

/// The orders of the epochs that a loader may make batches of. Thread-safe.
class OrderTable {
 public:
  using List = std::shared_ptr<const Order::Indices>;

  OrderTable() = default;
  /// Copies the orders.
  OrderTable(const OrderTable& other);
  OrderTable& operator=(const OrderTable&) = delete;

  /// Returns the order of an epoch, or null. From then on add() adds nothing: the loader has
  /// made empty batches, and cannot go on from them.
  List at(std::uint32_t epoch);
  /// Returns whether this is the epoch's order.
  bool holds(std::uint32_t epoch, const List& order) const;
  void add(std::uint32_t epoch, List order);
  void forget_before(std::uint32_t epoch);

 private:
  mutable std::mutex mutex_;
  std::map<std::uint32_t, List> lists_;
  bool closed_ = false;
};

}  // namespace millrace::python
