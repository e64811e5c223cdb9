// Stalls while native code holds the interpreter's lock: no thread of Python can report them.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace millrace::measure {

/// The wait for a batch under way, as other threads see it.
struct Waiting {
  std::atomic<std::int64_t> since{0};  ///< when next() was called (wall_ns()); 0: nobody waits
  std::atomic<std::int64_t> step{0};   ///< steps that had ended by then

  void begin(std::int64_t now, std::int64_t steps) {
    step.store(steps, std::memory_order_relaxed);
    since.store(now, std::memory_order_relaxed);
  }
  void end() { since.store(0, std::memory_order_relaxed); }
};

/// A thread that takes no interpreter's lock. One of Python says with beat() that it runs, and
/// leaves what is known. When it has fallen silent, a loader that is waited for is reported.
class LockWatch {
 public:
  /// A loader, and what is written of a stall of it.
  struct Loader {
    std::shared_ptr<const Waiting> waiting;
    std::int64_t limit_ns = 0;  ///< a longer wait is a stall
    std::string name;
    std::string text;    ///< of the line on stderr, behind the length of the wait
    std::string record;  ///< JSON object without its closing brace, "step" and "waited_s"
  };
  /// Where stalls are written.
  struct Output {
    std::string file;  ///< appended to
    /// Descriptor for lines, of which those are dropped that it does not take at once; -1: none.
    int line_file = -1;
    std::int64_t limit = 0;  ///< reports at most
  };

  LockWatch();
  ~LockWatch() { end(); }
  LockWatch(const LockWatch&) = delete;
  LockWatch& operator=(const LockWatch&) = delete;

  /// Begins the thread; without effect while it runs or where no more threads may be started. It
  /// looks around every `look_ns`, and finds Python silent after five looks without a beat. Returns
  /// whether it began now: it knows of no loader before the first beat.
  bool begin(std::int64_t look_ns);
  void beat(std::vector<Loader> loaders, Output output);
  /// Ends the thread: before a fork, which would leave the child without it. Waits for 2 s at most.
  void end();

  std::int64_t reports() const;

 private:
  struct State;
  static void* look(void* state);
  static void look_around(State& state);

  std::shared_ptr<State> state_;
  pthread_t thread_{};
  bool runs_ = false;
};

}  // namespace millrace::measure
