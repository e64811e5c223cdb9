// A growing byte buffer for pixels and encoded samples: 64-byte aligned and reused from sample to
// sample, so that steady state allocates nothing (bounded-memory contract).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace millrace {

/// Number of bytes that a kernel may read, but does not use, behind the last pixel of any image.
inline constexpr std::size_t kTailSlack = 64;

/// Owns one block of memory that grows and never shrinks; contents are not kept when it grows. Not
/// thread safe.
class Buffer {
 public:
  /// Returns a pointer to at least `size` bytes with undefined contents. Allocates only when it has
  /// to grow, which invalidates earlier pointers; throws std::bad_alloc.
  std::uint8_t* reserve(std::size_t size) {
    if (size > capacity_) {
      std::size_t capacity = size + size / 4;
      capacity = (capacity + kTailSlack + 63) / 64 * 64;
      data_.reset();
      capacity_ = 0;
      auto* memory = static_cast<std::uint8_t*>(std::aligned_alloc(64, capacity));
      if (memory == nullptr) throw std::bad_alloc();
      data_.reset(memory);
      capacity_ = capacity - kTailSlack;
    }
    return data_.get();
  }
  std::uint8_t* data() const { return data_.get(); }
  std::size_t capacity() const { return capacity_; }

 private:
  struct Free {
    void operator()(std::uint8_t* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::uint8_t, Free> data_;
  std::size_t capacity_ = 0;
};

}  // namespace millrace
