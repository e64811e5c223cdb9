// Python's interpreter lock (GIL), on threads that may outlive the interpreter.
//
// An interpreter that ends stops every other thread that asks for its lock. Up to Python 3.13 it
// calls pthread_exit() there, which glibc carries out by unwinding the stack; from 3.14 on the
// thread blocks forever. The process aborts where that unwinding meets a noexcept function or a
// catch (...) that does not rethrow, as in nanobind and oneTBB, and destructors would use Python's
// objects without the lock. Such threads therefore sleep, in the innermost frame of ours, until the
// process is gone. musl's pthread_exit() unwinds nothing and ends the thread where it is.
//
// A free-threaded interpreter has no such lock. A thread attaches to it by the same calls, for
// which it waits while the interpreter ends or stops all threads, and other threads run Python
// meanwhile.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <exception>
#include <type_traits>

namespace millrace::python {

/// Sleeps until the process is gone.
[[noreturn]] inline void park() noexcept {
  for (;;) pause();
}

/// Returns what `call` returns. A thread that the interpreter ends in it sleeps. Every call that
/// may run Python code, or ask for the GIL, belongs into this; objects that own references do not.
template <class Call>
auto survive(const Call& call) {
  // A destructor, because nothing may catch that unwinding while another exception is handled. It
  // does not count as an exception.
  struct Parking {
    const int exceptions = std::uncaught_exceptions();
    bool returned = false;
    ~Parking() {
      if (!returned && std::uncaught_exceptions() == exceptions) park();
    }
  } parking;
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    parking.returned = true;
  } else {
    auto result = call();
    parking.returned = true;
    return result;
  }
}

/// Returns whether the interpreter is about to end, on any thread but the one that ends it.
bool is_ending() noexcept;

/// Makes is_ending() true, and waits up to 2 s until no other thread is in a call that has released
/// the GIL, or asks for it. Call it with the GIL, which it releases, before the interpreter ends.
void begin_exit();

/// Makes is_ending() true on another thread than the one that ends the interpreter, which had begun
/// before this module was loaded.
void exit_has_begun() noexcept;

/// Releases the GIL.
class ReleasedGil {
 public:
  ReleasedGil() noexcept;
  ~ReleasedGil();
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* state_;
};

/// Takes the GIL, on any thread, unless is_ending(): a thread that Python has not made must not ask
/// for it then.
class HeldGil {
 public:
  HeldGil() noexcept;
  ~HeldGil();
  HeldGil(const HeldGil&) = delete;
  HeldGil& operator=(const HeldGil&) = delete;
  /// Returns whether this thread has the GIL; without it, nothing of Python may be used.
  explicit operator bool() const { return held_; }

 private:
  PyGILState_STATE state_{};
  bool held_ = false;
};

/// Adds begin_exit() and exit_has_begun() to the module.
void bind_gil(nanobind::module_& module);

}  // namespace millrace::python
