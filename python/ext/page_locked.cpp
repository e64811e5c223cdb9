// Allocates memory and has a device's functions lock its pages.
#include "python/ext/page_locked.h"

#include <fmt/format.h>

#include <cstdlib>

#include "millrace/error.h"

namespace millrace::python {
namespace {

constexpr std::size_t kPage = 4096;
constexpr unsigned kPortable = 1;  // cudaHostRegisterPortable: for every device of the process

class PageLocked final : public pipeline::SlotMemory {
 public:
  explicit PageLocked(PageLocks locks) : locks_(locks) {}

  void* allocate(std::size_t size) override {
    void* memory = std::aligned_alloc(kPage, whole(size));
    const int error = memory == nullptr ? -1 : locks_.lock(memory, whole(size), kPortable);
    if (error == 0) return memory;
    std::free(memory);
    throw RunError(fmt::format("no page-locked memory for batches: {} bytes{}", size,
                               error < 0 ? "" : fmt::format(", error {}", error)),
                   "lower loader.batch or loader.prefetch, or leave out device=");
  }

  void release(void* memory, std::size_t) noexcept override {
    // Memory that is still locked may be in use by the device.
    if (locks_.unlock(memory) == 0) std::free(memory);
  }

 private:
  /// Pages are locked as a whole, so blocks share none.
  static std::size_t whole(std::size_t size) { return (size + kPage - 1) / kPage * kPage; }

  PageLocks locks_;
};

}  // namespace

std::shared_ptr<pipeline::SlotMemory> page_locked_memory(PageLocks locks) {
  return std::make_shared<PageLocked>(locks);
}

}  // namespace millrace::python
