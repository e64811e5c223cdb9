// Page-locked memory of batches, from which a device copies while it computes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "pipeline/loader/slot_memory.h"

namespace millrace::python {

/// Functions that lock pages for a device and unlock them, as cudaHostRegister(memory, bytes,
/// flags) and cudaHostUnregister(memory). They return 0, or an error's number.
struct PageLocks {
  int (*lock)(void*, std::size_t, unsigned) = nullptr;
  int (*unlock)(void*) = nullptr;

  /// Takes them by their addresses.
  PageLocks(std::uintptr_t lock_at, std::uintptr_t unlock_at)
      : lock(std::bit_cast<decltype(lock)>(lock_at)),
        unlock(std::bit_cast<decltype(unlock)>(unlock_at)) {}
};

/// Returns memory whose pages the functions lock. It knows nothing of a device's copies: whoever
/// starts one keeps the batch until the copy has ended.
std::shared_ptr<pipeline::SlotMemory> page_locked_memory(PageLocks locks);

}  // namespace millrace::python
