// Annotations of hand-overs between threads for ThreadSanitizer.
#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace millrace::pipeline {

// Annotates hand-overs for ThreadSanitizer that it cannot see, because they happen inside Debian's
// uninstrumented libtbb. Each annotation covers one direction (constructor to task, task to
// destructor). Data shared among workers is not annotated and stays checked. Other builds compile
// this to nothing.

/// Makes all that this thread has done visible to later callers of annotate_acquire() with the same
/// tag.
inline void annotate_release([[maybe_unused]] const void* tag) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(const_cast<void*>(tag));
#endif
}
inline void annotate_acquire([[maybe_unused]] const void* tag) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(const_cast<void*>(tag));
#endif
}

}  // namespace millrace::pipeline
