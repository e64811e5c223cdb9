// A vector without allocation, for passes.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>

namespace millrace::augment {

/// A vector of at most kCapacity_ items stored in place. Construction writes only the size, and a
/// copy copies only the items present: passes are made and changed once per sample.
template <class Item, int kCapacity_>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<Item> && std::is_trivially_destructible_v<Item>);

 public:
  static constexpr int kCapacity = kCapacity_;
  InlineVector() = default;
  InlineVector(const InlineVector& other) { *this = other; }
  InlineVector& operator=(const InlineVector& other) {
    if (this == &other) return *this;
    size_ = 0;
    for (const Item& item : other) push_back(item);
    return *this;
  }

  /// Appends an item. The vector must not be full.
  void push_back(const Item& item) { new (place(size_++)) Item(item); }
  void push_front(const Item& item) {
    const Item copy = item;  // may lie in this vector
    for (int i = size_; i > 0; --i) new (place(i)) Item((*this)[i - 1]);
    new (place(0)) Item(copy);
    ++size_;
  }
  void clear() { size_ = 0; }

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == kCapacity; }
  Item& operator[](int i) { return *std::launder(reinterpret_cast<Item*>(place(i))); }
  const Item& operator[](int i) const {
    return *std::launder(reinterpret_cast<const Item*>(place(i)));
  }
  Item* begin() { return std::launder(reinterpret_cast<Item*>(place(0))); }
  Item* end() { return begin() + size_; }
  const Item* begin() const { return std::launder(reinterpret_cast<const Item*>(place(0))); }
  const Item* end() const { return begin() + size_; }

 private:
  void* place(int i) { return items_ + static_cast<std::size_t>(i) * sizeof(Item); }
  const void* place(int i) const { return items_ + static_cast<std::size_t>(i) * sizeof(Item); }

  alignas(Item) std::byte items_[sizeof(Item) * kCapacity_];
  int size_ = 0;
};

}  // namespace millrace::augment
