// Survives the truncation of a mapped file while it is in use (contained-failures contract). The
// kernel answers the next access to a lost page with SIGBUS. The handler replaces the page with
// zeros and increments a counter. From then on readers check the file (is_damaged), so that the
// sample concerned fails like any other.
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>

namespace millrace::base {

struct GuardedRange;

/// Guards `size` bytes of a mapped file (whole pages). The first call installs the SIGBUS handler;
/// faults elsewhere go to the handler that was installed before.
GuardedRange* guard(const void* memory, std::size_t size);
/// Ends the guard; call it before the range is unmapped.
void unguard(GuardedRange* range);
/// Returns true once a page of this range was lost.
bool is_damaged(const GuardedRange* range);

/// Called in a SIGBUS handler: replaces the lost page with zeros and returns true if the fault was
/// in a guarded range.
bool replace_lost_page(const siginfo_t* info);

/// Returns the number of pages replaced so far, in all mapped files.
std::uint64_t mapped_faults();

}  // namespace millrace::base
