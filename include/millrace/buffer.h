// Memory for pixels and bytes: 64-byte aligned, only ever growing, reused from sample to sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace millrace {

/// Bytes that may be read (not used) behind the last pixel of any image handed to a kernel.
inline constexpr std::size_t kTailSlack = 64;

class Buffer {
 public:
  /// At least `size` bytes, contents undefined; allocates only when it has to grow.
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
