// Counts allocations by replacing operator new.
#include "tests/pipeline/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::uint64_t> g_allocations{0};
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(std::size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
bool millrace::pipeline::counts_allocations() { return true; }
#else
bool millrace::pipeline::counts_allocations() { return false; }
#endif

std::uint64_t millrace::pipeline::allocations() { return g_allocations.load(); }
