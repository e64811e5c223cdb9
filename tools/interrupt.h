// Ctrl-C and SIGTERM as an orderly end: a flag that loops and loaders look at.
#pragma once

#include <atomic>

namespace millrace {

/// Catches SIGINT and SIGTERM from here on. Call it before any other thread is made. A second
/// signal ends the process at once (exit 130).
void catch_interrupts();
/// Set once a signal has come.
const std::atomic<bool>& interrupted();

}  // namespace millrace
