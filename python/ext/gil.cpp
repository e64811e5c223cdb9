// Counts the threads that the end of the interpreter concerns, and waits for them.
#include "python/ext/gil.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace millrace::python {
namespace {

/// Time that begin_exit() waits for other threads, as a loader does for a worker that is blocked.
constexpr std::chrono::seconds kPatience{2};

std::atomic<bool> g_ending{false};
std::atomic<int> g_released{0};  ///< calls that have released the GIL, of all threads
std::atomic<int> g_asking{0};    ///< threads that may be about to ask for the GIL
thread_local int t_released = 0;
thread_local bool t_ends_it = false;  ///< this thread ends the interpreter

}  // namespace

bool is_ending() noexcept { return g_ending && !t_ends_it; }

void begin_exit() {
  t_ends_it = true;
  g_ending = true;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const ReleasedGil released;  // those that ask for it get it
  while ((g_released > t_released || g_asking > 0) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void exit_has_begun() noexcept { g_ending = true; }

ReleasedGil::ReleasedGil() noexcept : state_(PyEval_SaveThread()) {
  ++g_released;
  ++t_released;
}

ReleasedGil::~ReleasedGil() {
  survive([this] { PyEval_RestoreThread(state_); });
  --t_released;
  --g_released;
}

HeldGil::HeldGil() noexcept {
  ++g_asking;  // before is_ending() is read, so that begin_exit() sees one of both
  if (!is_ending()) {
    state_ = survive([] { return PyGILState_Ensure(); });
    held_ = true;
  }
  --g_asking;
}

HeldGil::~HeldGil() {
  if (held_) survive([this] { PyGILState_Release(state_); });
}

void bind_gil(nanobind::module_& module) {
  // A forked child has one thread.
  pthread_atfork(nullptr, nullptr, [] {
    g_released = t_released;
    g_asking = 0;
  });
  module.def("begin_exit", &begin_exit);
  module.def("exit_has_begun", &exit_has_begun);
}

}  // namespace millrace::python
