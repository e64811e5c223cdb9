// Threads that share cores, in simulated time: the event engine of the replays.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace::predict {

/// Kinds of work of a thread. Each slows down in its own way beside busy cores.
enum class Work { stage, update, host };
inline constexpr std::size_t kWorkCount = 3;

/// Times that a pool of spinning threads gets slower beside busy threads, at most
/// (docs/results/2026-11-27-without-workers.md).
inline constexpr double kMaxSlowdown = 60;

/// The machine.
struct Cores {
  int count = 1;
  /// Processes like the simulated one, in lockstep: each of its threads stands for as many.
  int ranks = 1;
  /// Whether the threads of a pool spin while they wait for each other, as OpenMP's do.
  bool spins = false;
  /// Duration of each kind of work while all cores are busy, over that on an idle machine: shared
  /// caches, memory and clocks. Interpolated in between by the number of busy cores.
  std::array<double, kWorkCount> crowding{1, 1, 1};
};

/// Returns how fast `threads` threads of a pool get on, 1 on cores of their own, while `wanted`
/// threads share `cores` cores. If they spin, they get on only while all of them have a core: that
/// is the probability that all are among those which have one.
double progress(double threads, double wanted, int cores, bool spins);

/// Discrete-event simulation of threads that compute, sleep or are idle. Pure arithmetic: equal
/// calls give equal results. An event takes O(log threads), and O(threads of a pool) for each size
/// of spinning pools.
class SharedCores {
 public:
  /// Makes `threads` idle threads at time 0.
  SharedCores(const Cores& cores, std::size_t threads);

  /// Seconds since the start.
  double now() const { return now_; }
  /// Core seconds used so far.
  double busy_s() const { return busy_s_; }
  bool is_idle(std::size_t thread) const { return idle_[thread]; }

  /// Lets an idle thread compute for `cpu_s` seconds on a core; as a pool of `pool` threads, which
  /// take as much each.
  void run(std::size_t thread, Work work, double cpu_s, double pool = 1);
  /// Lets an idle thread sleep until a time.
  void sleep_until(std::size_t thread, double time);
  /// Ends the sleep of a thread now, so that advance() returns it next. Takes O(threads); no effect
  /// on a thread that does not sleep.
  void wake(std::size_t thread);

  /// Advances to the next moment at which threads are done. Returns them, in the order in which
  /// they started; they are idle now. Empty if none computes or sleeps. Valid until the next call.
  std::span<const std::size_t> advance();

 private:
  /// A stretch of one thread.
  struct Stretch {
    double end = 0;  ///< of those that sleep a time, of others a moment on their pace's clock
    std::uint64_t number = 0;  ///< in the order of starts
    std::size_t thread = 0;
  };
  /// Threads that compute the same kind of work in pools of one size, and get on equally fast. They
  /// end in an order that is known when they start, however their pace changes.
  struct Pace {
    Work work = Work::host;
    double pool = 1;
    double served = 0;                 ///< seconds on a core that each has had since the start
    double speed = 1;                  ///< until the next event
    std::vector<Stretch> stretches{};  ///< a heap
  };
  static bool ends_later(const Stretch& a, const Stretch& b);
  static void push(std::vector<Stretch>& heap, const Stretch& one);
  static Stretch pop(std::vector<Stretch>& heap);
  Pace& pace_of(Work work, double pool);
  double speed_of(const Pace& pace) const;

  Cores cores_;
  double now_ = 0;
  double busy_s_ = 0;
  double wanted_ = 0;  ///< threads that compute, of all ranks
  std::uint64_t started_ = 0;
  std::vector<char> idle_;
  std::vector<Pace> paces_;
  std::vector<Stretch> asleep_;  ///< a heap
  std::vector<Stretch> due_;     ///< of no length
  std::vector<Stretch> ended_;
  std::vector<std::size_t> threads_;  ///< that advance() returns
};

}  // namespace millrace::predict
