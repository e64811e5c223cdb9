// Orderly end on Ctrl-C and SIGTERM: sets a flag that loops and loaders check.
#pragma once

#include <sys/types.h>

#include <atomic>

namespace millrace::tools {

/// Catches SIGINT and SIGTERM from now on. Call it before any other thread starts. A second signal
/// ends the process at once (exit 130).
void catch_interrupts();
/// Returns the flag, set after a signal and by ranks that hear of another's.
std::atomic<bool>& interrupted();

/// During its lifetime, the first signal ends the process at once (exit 130, with a line that says
/// so): nothing is worth saving yet, and the current work may take long (opening a data set,
/// waiting for ranks). One per process at a time.
class LeaveOnInterrupt {
 public:
  /// Throws Error if a signal has already come.
  LeaveOnInterrupt();
  ~LeaveOnInterrupt() { end(); }
  LeaveOnInterrupt(const LeaveOnInterrupt&) = delete;
  LeaveOnInterrupt& operator=(const LeaveOnInterrupt&) = delete;
  void end();
};

/// Calls fork() for a child that executes another program. A signal between the two ends the child,
/// where a handler would only set a flag that is lost.
pid_t fork_for_program();

}  // namespace millrace::tools
