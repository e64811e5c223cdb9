#include "tools/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace millrace {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

/// What a launcher or sweep passes on may come beside what a scheduler sends to every process of a
/// job: once from each is still the first signal.
void on_signal(int, siginfo_t* info, void*) {
  static volatile std::sig_atomic_t from_parent = 0, from_others = 0;
  volatile std::sig_atomic_t& count =
      info->si_code <= 0 && info->si_pid == getppid() ? from_parent : from_others;
  g_interrupted.store(true);
  if (count != 0) _exit(130);
  count = 1;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGINT);  // one at a time
  sigaddset(&action.sa_mask, SIGTERM);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error of write(), not the end
}

const std::atomic<bool>& interrupted() { return g_interrupted; }

}  // namespace millrace
