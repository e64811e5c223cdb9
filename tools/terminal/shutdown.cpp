// Ends of the program: signal handlers, and messages and exit codes of exceptions.

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

#include "millrace/error.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

std::atomic<bool> g_interrupted{false};
std::atomic<bool> g_leave{false};
int g_errors = STDERR_FILENO;
constexpr const char* kBeforeFirstStep = "interrupted before the first step";
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

/// A signal that a launcher or sweep passes on may arrive beside one that a scheduler sends to
/// every process of a job: one of each still counts as the first signal.
void on_signal(int, siginfo_t* info, void*) {
  static volatile std::sig_atomic_t from_parent = 0, from_others = 0;
  volatile std::sig_atomic_t& count =
      info->si_code <= 0 && info->si_pid == getppid() ? from_parent : from_others;
  g_interrupted.store(true);
  if (g_leave.load()) {
    static_cast<void>(!write(g_errors, "millrace: ", 10));
    static_cast<void>(!write(g_errors, kBeforeFirstStep, std::strlen(kBeforeFirstStep)));
    static_cast<void>(!write(g_errors, "\n", 1));
    _exit(static_cast<int>(Exit::interrupted));
  }
  if (count != 0) _exit(130);
  count = 1;
}

}  // namespace

void catch_interrupts() {
  g_errors = error_descriptor();
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGINT);  // handles one signal at a time
  sigaddset(&action.sa_mask, SIGTERM);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding a file size limit becomes an error of write()
}

std::atomic<bool>& interrupted() { return g_interrupted; }

LeaveOnInterrupt::LeaveOnInterrupt() {
  g_leave.store(true);
  if (interrupted()) throw Error(Exit::interrupted, kBeforeFirstStep);
}

void LeaveOnInterrupt::end() { g_leave.store(false); }

pid_t fork_for_program() {
  sigset_t signals, before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, &before);
  const pid_t pid = fork();
  if (pid == 0) {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pid;
}

namespace {

[[noreturn]] void end() {
  std::set_terminate(std::abort);  // explaining may fail too
  if (const std::exception_ptr failure = std::current_exception())
    _exit(static_cast<int>(explain(failure)));
  std::abort();
}

}  // namespace

Exit explain(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    print_error(error);
    return error.exit();
  } catch (const std::bad_alloc&) {
    print_error(RunError("out of memory", "lower loader.batch or loader.prefetch"));
  } catch (const std::system_error& error) {
    // std::thread's message is only "Resource temporarily unavailable".
    const bool thread = error.code() == std::errc::resource_unavailable_try_again;
    print_error(thread ? RunError(fmt::format("cannot start a thread: {}", error.what()),
                                  "allow more processes or memory (ulimit -u, ulimit -v), or lower "
                                  "loader.workers and train.threads")
                       : RunError(error.what()));
  } catch (const std::exception& error) {
    print_error(RunError(error.what()));
  } catch (...) {
    print_error(RunError("an exception of unknown type"));
  }
  return Exit::failed;
}

void explain_uncaught() { std::set_terminate(end); }

}  // namespace millrace::tools
