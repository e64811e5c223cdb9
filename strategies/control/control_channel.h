// Ranks watch each other over TCP connections of their own, beside the collectives': when one dies,
// stops or gets stuck, all leave within the time-out, and each can say which rank it was.
//
// Every rank is connected to rank 0. A background thread sends a heartbeat every min(timeout / 10,
// 1 s). Rank 0 judges and tells all the others; they judge rank 0. What counts as a failure:
// - a connection that closes without a goodbye (SIGKILL, a crash): noticed at once;
// - no heartbeat for 3/4 of the time-out (SIGSTOP, a host or network that is gone);
// - a rank without progress that is in no collective, while another one waits in a collective, both
//   for 3/4 of the time-out (its trainer thread is stuck);
// - a goodbye with a reason (an error of its own).
//
// An interrupt of one rank is one of all: heartbeats carry it. Before every rank has begun its
// first step all leave at once. Later the trainers agree on a last step, and the ranks beat four
// times per second: when one is not heard of for 1.25 s, or closes its connection, the others
// leave. Time in which this process itself stood still is not held against the others.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "strategies/control/control_message.h"
#include "strategies/control/failure_report.h"
#include "strategies/control/socket.h"

namespace millrace::train {

struct ControlOptions {
  int rank = 0;
  int world = 1;
  double timeout_s = 60;  ///< train.timeout: within it all ranks have left
  std::uint64_t key = 0;  ///< the same for all ranks of a run, so that runs don't get mixed up
  /// Set when a signal asks this process to stop, and by the channel when another rank was asked;
  /// looked at ten times per second. Null: interrupts are not the channel's business.
  std::atomic<bool>* interrupted = nullptr;
  /// Called once, on the background thread, when another rank has failed, or when the others have
  /// given up this one, or for an interrupt that no checkpoint can follow. Meant to print one line
  /// and _exit(). It must not touch the channel.
  std::function<void(const FailureReport&)> on_failure = nullptr;
};

/// How a rank leaves.
enum class Leave { no, silently, done, failed };

/// What the trainer's thread and the background thread share.
struct ControlState {
  std::atomic<std::uint64_t> position{0};  ///< 2 * step + in_collective
  std::atomic<std::uint64_t> stamp{0};     ///< changes with every progress()

  Fd wake;  ///< an eventfd: an order has come
  std::mutex mutex;
  std::condition_variable changed;
  Leave order = Leave::no;   ///< to the background thread
  std::string reason;        ///< of Leave::failed
  std::vector<int> missing;  ///< ranks that have not come yet; rank 0 knows all, the others rank 0
  bool all_here = false;
  bool over = false;  ///< the background thread has ended
  std::optional<FailureReport> failure;
};

/// One a process. progress(), goodbye(), fail() and the destructor belong to one thread.
class ControlChannel {
 public:
  /// Rank 0. Listens at `address` (empty: everywhere) on a port of the kernel's choice. Throws
  /// UsageError for options that make no sense, RunError where it cannot listen.
  static std::unique_ptr<ControlChannel> serve(ControlOptions options,
                                               const std::string& address = {});
  /// Any other rank. Tries to reach rank 0 for `patience_s` seconds, then throws RunError;
  /// UsageError when rank 0 refuses it (another world, a rank that is there already).
  static std::unique_ptr<ControlChannel> connect(ControlOptions options, const std::string& host,
                                                 int port, double patience_s);
  /// Without goodbye() or fail() before it, it looks to the others as if this rank had died.
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  /// Of rank 0, to be told to the others.
  int port() const { return port_; }

  /// Returns once every rank has connected. Throws RunError that names the missing ones after
  /// `patience_s` seconds.
  void wait_for_ranks(double patience_s);

  /// This rank's trainer is at `step` and alive; `in_collective`: it now waits for other ranks. A
  /// few ns: two relaxed stores.
  void progress(std::uint64_t step, bool in_collective) {
    state_.position.store(step << 1 | static_cast<std::uint64_t>(in_collective),
                          std::memory_order_relaxed);
    state_.stamp.store(state_.stamp.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  /// The end of this rank's work: the others go on without it. When rank 0 says it, nobody is
  /// watched any more. Waits at most a second.
  void goodbye();

  /// This rank ends by an error of its own: the others are told `reason`, in one line. Waits up to
  /// 1.5 s for rank 0's word on what came first: where it was another rank's failure (this one's
  /// error is then only what followed from it), on_failure is called with that, else nothing.
  void fail(const std::string& reason);

 private:
  explicit ControlChannel(ControlOptions options);
  void start(std::function<void()> body);
  void leave(Leave how, const std::string& reason);

  const ControlOptions options_;
  ControlState state_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace millrace::train
