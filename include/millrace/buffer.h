// A growing byte buffer for pixels and encoded samples: 64-byte aligned and reused from sample to
// sample, so that steady state allocates nothing (bounded-memory contract).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

namespace millrace {

/// Number of bytes that a kernel may read, but does not use, behind the last pixel of any image.
inline constexpr std::size_t kTailSlack = 64;

/// Owns one block of memory that grows and never shrinks; contents are not kept when it grows. Not
/// thread safe.
class Buffer {
 public:
  /// Resource that a reader keeps beside the block, such as a mapping whose bytes it hands out.
  class Attachment {
   public:
    Attachment() = default;
    virtual ~Attachment() = default;
    Attachment(const Attachment&) = delete;
    Attachment& operator=(const Attachment&) = delete;
  };

  /// Returns a pointer to at least `size` bytes with undefined contents. Allocates only when it has
  /// to grow, which invalidates earlier pointers; throws std::bad_alloc.
  std::uint8_t* reserve(std::size_t size) {
    if (size > capacity_) {
      if (size > SIZE_MAX / 2) throw std::bad_alloc();
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
  /// Returns what attach() was called with last, or null.
  Attachment* attachment() const { return attachment_.get(); }
  /// Keeps something as long as the buffer, in place of what was attached before.
  void attach(std::unique_ptr<Attachment> attachment) { attachment_ = std::move(attachment); }

 private:
  struct Free {
    void operator()(std::uint8_t* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::uint8_t, Free> data_;
  std::size_t capacity_ = 0;
  std::unique_ptr<Attachment> attachment_;
};

}  // namespace millrace
