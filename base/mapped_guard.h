// What happens when a mapped file is cut short by someone else while it is in use: the kernel
// answers the next touch with SIGBUS. Here the missing page becomes zeros instead, and a counter
// tells that it happened; from then on readers ask the file itself (is_damaged), so that
// the sample concerned fails like any other.
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>

namespace millrace::base {

struct GuardedRange;

/// Guards `size` bytes of mapped file (whole pages). The first call installs the SIGBUS handler;
/// faults elsewhere go on to the handler that was there before.
GuardedRange* guard(const void* memory, std::size_t size);
/// Before the range is unmapped.
void unguard(GuardedRange* range);
/// True once a page of this range was gone.
bool is_damaged(const GuardedRange* range);

/// In a handler of SIGBUS: true if the fault was in a guarded range, whose page is zeros now.
bool replace_lost_page(const siginfo_t* info);

/// Pages that have been replaced so far, in all mapped files.
std::uint64_t mapped_faults();

}  // namespace millrace::base
