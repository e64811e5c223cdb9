// Ctrl-C and SIGTERM as an orderly end: a flag that loops and loaders look at.
#pragma once

#include <sys/types.h>

#include <atomic>

namespace millrace::tools {

/// Catches SIGINT and SIGTERM from here on. Call it before any other thread is made. A second
/// signal ends the process at once (exit 130).
void catch_interrupts();
/// Set once a signal has come, and by ranks that hear of another's.
std::atomic<bool>& interrupted();

/// While it lives, the first signal ends the process at once (exit 130, and a line that says so):
/// nothing is worth saving yet, and what goes on may take long (a data set to be opened, ranks that
/// have not come). One a process at a time.
class LeaveOnInterrupt {
 public:
  /// Throws Error where a signal has come before.
  LeaveOnInterrupt();
  ~LeaveOnInterrupt() { end(); }
  LeaveOnInterrupt(const LeaveOnInterrupt&) = delete;
  LeaveOnInterrupt& operator=(const LeaveOnInterrupt&) = delete;
  void end();
};

/// fork() for a child that becomes another program: a signal between the two ends it, where a
/// handler would only set a flag that is lost.
pid_t fork_for_program();

}  // namespace millrace::tools
