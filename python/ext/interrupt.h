// Ctrl-C while C++ waits for a server.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <mutex>
#include <thread>

#include "millrace/error.h"
#include "python/ext/gil.h"

namespace millrace::python {

/// Time for which `stop` is set at least: threads that read ahead look every 50 ms.
inline constexpr std::chrono::milliseconds kHold{200};

/// Ends work that runs for Python.
class Interrupts {
 public:
  std::atomic<bool> stop{false};  ///< ends waits for a server, and the loaders that look at it
  std::atomic<std::uint64_t> count{0};  ///< of times that Ctrl-C has set `stop`; grows before it

  /// Keeps `stop` set as long as it lives. Several threads may have one.
  class Hold {
   public:
    explicit Hold(Interrupts& interrupts, bool ctrl_c = false) : interrupts_(interrupts) {
      interrupts_.hold(1, ctrl_c);
    }
    ~Hold() { interrupts_.hold(-1, false); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Interrupts& interrupts_;
  };

  /// Waits until no caller keeps `stop` set, and returns `count`. Call it without the GIL.
  std::uint64_t wait_for_release() {
    std::unique_lock lock(mutex_);
    released_.wait(lock, [&] { return holds_ == 0; });
    return count;
  }

 private:
  void hold(int change, bool ctrl_c) {
    const std::lock_guard lock(mutex_);
    holds_ += change;
    if (ctrl_c) ++count;
    stop = holds_ > 0;
    released_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable released_;
  int holds_ = 0;
};

/// Flag that ends the work of run_interruptibly() on this thread; null elsewhere.
inline thread_local const std::atomic<bool>* t_stop = nullptr;

/// Runs Python's handlers of signals that have arrived. Returns whether one raised an exception, or
/// whether the interpreter is ending.
inline bool has_signal() {
  const HeldGil gil;
  return !gil || survive([] { return PyErr_CheckSignals(); }) != 0;
}

/// Says that no call can go on because the interpreter is ending; translate() makes it SystemExit.
[[noreturn]] inline void end_call() { throw RunError("the interpreter is ending"); }

/// Runs `work` on another thread and, every 50 ms, Python's signal handlers on this one. When a
/// handler raises an exception, or the interpreter is ending, sets `stop`, raises KeyboardInterrupt
/// in a Python function that `work` has called, at once and then once per second in case the
/// function has caught it, waits for `work` to end and throws the handler's exception. A function
/// that waits in C, as in time.sleep(), ends first. Call it without the GIL.
template <class Work>
auto run_interruptibly(Interrupts& interrupts, const Work& work) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPeriod{50};
  constexpr std::chrono::seconds kAgain{1};
  std::atomic<unsigned long> thread{0};
  auto result = std::async(std::launch::async, [&] {
    thread = PyThread_get_thread_ident();
    t_stop = &interrupts.stop;
    return work();
  });
  while (result.wait_for(kPeriod) != std::future_status::ready) {
    if (!has_signal()) continue;
    const Clock::time_point begin = Clock::now();
    {
      const Interrupts::Hold hold(interrupts, /*ctrl_c=*/true);
      Clock::time_point due = begin;
      do {
        if (Clock::now() < due) continue;
        const HeldGil gil;  // a thread without Python state is left alone
        if (gil && PyThreadState_SetAsyncExc(thread, PyExc_KeyboardInterrupt) > 0)
          due = Clock::now() + kAgain;
      } while (result.wait_for(kPeriod) != std::future_status::ready);
      std::this_thread::sleep_until(begin + kHold);
    }
    const HeldGil gil;
    if (!gil) end_call();
    throw nanobind::python_error();
  }
  return result.get();
}

}  // namespace millrace::python
