// Tells ThreadSanitizer of hand-overs that it cannot see, because they happen inside Debian's
// uninstrumented libtbb. Each names one direction (constructor to task, task to destructor); what
// workers share among each other is not covered and stays checked. Nothing in other builds.
#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace millrace::pipeline {

/// All that this thread has done is seen by whoever calls taken_over() on the same tag later.
inline void hand_over([[maybe_unused]] const void* tag) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(const_cast<void*>(tag));
#endif
}
inline void taken_over([[maybe_unused]] const void* tag) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(const_cast<void*>(tag));
#endif
}

}  // namespace millrace::pipeline
