// Ctrl-C while C++ waits for a server.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <future>

namespace millrace::python {

/// Runs Python's handlers of signals that have arrived. Returns whether one raised an exception.
inline bool has_signal() {
  const nanobind::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

/// Runs `work` on another thread and Python's signal handlers on this one. When a handler raises an
/// exception, sets `stop`, which ends waits for a server, raises KeyboardInterrupt in a Python
/// function that `work` has called, waits for `work` to end and throws the handler's exception. A
/// function that waits in C, as in time.sleep(), ends first. Call it without the GIL.
template <class Work>
auto run_interruptibly(std::atomic<bool>& stop, const Work& work) {
  constexpr std::chrono::milliseconds kPeriod{50};
  std::atomic<unsigned long> thread{0};
  auto result = std::async(std::launch::async, [&] {
    thread = PyThread_get_thread_ident();
    return work();
  });
  while (result.wait_for(kPeriod) != std::future_status::ready) {
    if (!has_signal()) continue;
    stop = true;
    while (result.wait_for(kPeriod) != std::future_status::ready) {
      const nanobind::gil_scoped_acquire gil;  // a thread without Python state is left alone
      PyThreadState_SetAsyncExc(thread, PyExc_KeyboardInterrupt);
    }
    stop = false;
    const nanobind::gil_scoped_acquire gil;
    throw nanobind::python_error();
  }
  return result.get();
}

}  // namespace millrace::python
