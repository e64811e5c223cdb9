// Control channel between the ranks of a run: reports of failures, the messages, and a rank's end
// of the channel.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "base/descriptor.h"
#include "base/private_api.h"
#include "strategies/control/socket.h"

namespace millrace::train {

/// Ways in which a rank fails.
enum class FailureKind : std::uint8_t {
  died,         ///< its connection closed without a goodbye: killed or crashed
  silent,       ///< no heartbeat: stopped, or its host or network is lost
  stuck,        ///< its trainer thread makes no progress while others wait for it in a collective
  ended,        ///< it ended by its own error, which is `reason`
  interrupted,  ///< a signal came, and no checkpoint can be agreed on (before the first step, or no
                ///< answer)
};

/// Describes which rank failed, and how. Every rank prints it before it leaves.
struct FailureReport {
  FailureKind kind = FailureKind::died;
  int rank = 0;
  std::uint64_t pid = 0;
  std::string host;
  std::uint64_t step = 0;  ///< last known step, up to one heartbeat old
  double idle_s = 0;       ///< silent, stuck: duration
  std::string reason;      ///< ended: the error, in one line

  /// Returns one line: "rank 1 (host, pid 123) ended at step 120: images/7.jpg: cannot be decoded".
  MILLRACE_PRIVATE_API std::string text() const;
  /// Returns advice for the user, or an empty string.
  MILLRACE_PRIVATE_API std::string hint() const;

  bool operator==(const FailureReport&) const = default;
};

// Messages of the control channel and their wire format: length-prefixed, a few dozen bytes,
// little-endian, validated before use.

/// A rank's first message to rank 0.
struct Hello {
  std::uint64_t key = 0;  ///< must equal rank 0's key
  std::uint32_t world = 0;
  std::uint32_t rank = 0;
  std::uint64_t pid = 0;
  std::string host;
  bool operator==(const Hello&) const = default;
};
/// Rank 0's answer to an accepted hello.
struct Welcome {
  std::uint64_t pid = 0;
  std::string host;
  bool operator==(const Welcome&) const = default;
};
/// Rank 0's answer to a rejected hello.
struct Refused {
  std::string reason;
  bool operator==(const Refused&) const = default;
};
/// Sent by rank 0 to all, once every rank has said hello.
struct AllHere {
  bool operator==(const AllHere&) const = default;
};
struct Heartbeat {
  std::uint64_t step = 0;
  std::uint64_t stamp = 0;  ///< changes with every sign of progress
  bool in_collective = false;
  bool interrupted = false;  ///< a signal asked the sender, or a rank it has heard from, to stop
  bool operator==(const Heartbeat&) const = default;
};
struct Goodbye {
  std::uint64_t step = 0;
  std::string reason;  ///< text of an error; empty: regular end
  bool operator==(const Goodbye&) const = default;
};

using Message = std::variant<Hello, Welcome, Refused, AllHere, Heartbeat, Goodbye, FailureReport>;

/// Encodes a message. Cuts texts to kMaxText bytes.
std::string encode(const Message& message);

inline constexpr std::size_t kMaxText = 1000;

struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Splits a byte stream into messages.
class MessageReader {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  /// Returns the next message; empty until it is complete. Throws ProtocolError for malformed
  /// bytes, after which the stream cannot be trusted.
  std::optional<Message> next();

 private:
  std::string bytes_;
};

struct ControlOptions {
  int rank = 0;
  int world = 1;
  double timeout_s = 60;  ///< train.timeout: all ranks leave within this time
  std::uint64_t key = 0;  ///< the same for all ranks of a run; keeps runs apart
  /// Set when a signal asks this process to stop, and by the channel when another rank was asked.
  /// Polled ten times per second. Null: the channel ignores interrupts.
  std::atomic<bool>* interrupted = nullptr;
  /// Called once, on the background thread: when another rank has failed, when the others have
  /// given up this one, or after an interrupt that no checkpoint can follow. It should print one
  /// line and _exit(), and must not use the channel.
  std::function<void(const FailureReport&)> on_failure = nullptr;
};

/// Ways in which a rank leaves.
enum class Leave { no, silently, done, failed };

/// State shared by the trainer's thread and the background thread.
struct ControlState {
  std::atomic<std::uint64_t> position{0};  ///< 2 * step + in_collective
  std::atomic<std::uint64_t> stamp{0};     ///< changes with every call of progress()

  base::Descriptor wake;  ///< eventfd: signals a new order
  std::mutex mutex;
  std::condition_variable changed;
  Leave order = Leave::no;   ///< for the background thread
  std::string reason;        ///< reason of Leave::failed
  std::vector<int> missing;  ///< ranks not yet connected; only rank 0 knows about all
  bool all_here = false;
  bool over = false;  ///< the background thread has ended
  std::optional<FailureReport> failure;
};

/// Control channel: ranks watch each other over TCP connections of their own, beside those of the
/// collectives. When a rank dies, stops or gets stuck, all others leave within the time-out, and
/// each can say which rank it was.
///
/// Every rank is connected to rank 0. A background thread sends a heartbeat every min(timeout / 10,
/// 1 s). Rank 0 watches the others and decides which of them failed; they watch rank 0. A failure
/// is one of:
/// - a connection that closes without a goodbye (SIGKILL, a crash): detected at once;
/// - no heartbeat for 3/4 of the time-out (SIGSTOP, a lost host or network);
/// - a rank that makes no progress outside of collectives while another waits in one, both for 3/4
///   of the time-out (its trainer thread is stuck);
/// - a goodbye with a reason (an error of its own).
///
/// An interrupt of one rank interrupts all: heartbeats carry it. Before every rank has begun its
/// first step, all leave at once. Later the trainers agree on a last step, and the ranks send four
/// heartbeats per second: if one is silent for 1.25 s, or closes its connection, the others leave.
/// Time during which this process itself was stopped does not count against the others.
///
/// A rank's end of the control channel; one per process. progress(), goodbye(), fail() and the
/// destructor must be called from one thread.
class MILLRACE_PRIVATE_API ControlChannel {
 public:
  /// Opens the channel of rank 0. Listens at `address` (empty: all addresses) on a port chosen by
  /// the kernel. Throws UsageError for invalid options, RunError if it cannot listen.
  static std::unique_ptr<ControlChannel> serve(ControlOptions options,
                                               const std::string& address = {});
  /// Opens the channel of any other rank. Retries for `patience_s` seconds, then throws RunError.
  /// Throws UsageError if rank 0 rejects it (different world size, or a rank that is already
  /// connected).
  static std::unique_ptr<ControlChannel> connect(ControlOptions options, const std::string& host,
                                                 int port, double patience_s);
  /// Without a preceding goodbye() or fail(), the others conclude that this rank died.
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  /// Returns rank 0's port, which the other ranks need.
  int port() const { return port_; }

  /// Returns once every rank has connected. Throws RunError with the missing ranks after
  /// `patience_s` seconds.
  void wait_for_ranks(double patience_s);

  /// Reports that this rank's trainer is alive at `step`; `in_collective`: it now waits for other
  /// ranks. Takes a few ns: two relaxed stores.
  void progress(std::uint64_t step, bool in_collective) {
    state_.position.store(step << 1 | static_cast<std::uint64_t>(in_collective),
                          std::memory_order_relaxed);
    state_.stamp.store(state_.stamp.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  /// Announces the regular end of this rank's work; the others continue without it. If rank 0 says
  /// goodbye, the watch ends. Waits at most 1 s.
  void goodbye();

  /// Announces that this rank ends by an error: the others receive `reason`, in one line. Waits up
  /// to 1.5 s for rank 0's verdict on what failed first. If another rank failed before (so that
  /// this error is a consequence), calls on_failure with that failure; otherwise does not call it.
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

/// Background thread of the control channel: sockets, heartbeats and the verdict.
class ControlLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /// Creates the loop of rank 0.
  ControlLoop(const ControlOptions& options, ControlState& state, base::Descriptor listener);
  /// Creates the loop of another rank, after rank 0's answer. `reader` may hold messages that
  /// followed it.
  ControlLoop(const ControlOptions& options, ControlState& state, base::Descriptor server,
              MessageReader reader, const Welcome& welcome);

  /// Runs the loop. Returns after the goodbye, or after on_failure.
  void run();

 private:
  struct Connection {
    base::Descriptor fd;
    MessageReader reader;
    std::string out;  ///< bytes still to be sent
    int rank = -1;    ///< -1: no hello received
    Time heard;
  };
  /// State of a rank as this process knows it.
  struct Member {
    enum class Presence { missing, here, left } presence = Presence::missing;
    std::uint64_t pid = 0;
    std::string host;
    std::uint64_t step = 0;
    std::uint64_t stamp = 0;
    bool in_collective = false;
    bool interrupted = false;  ///< the rank knows that the run is to end
    Time since;                ///< time of the last progress
  };
  enum class Phase {
    watching,
    telling,  ///< rank 0: the verdict was sent, and the others get time to read it
    leaving,  ///< the goodbye is being sent
    asking,   ///< this rank has an error: waiting for rank 0 to say whether it came first
    over,
  };

  bool serves() const { return options_.rank == 0; }
  void wait();
  void forgive(Clock::duration stood_still);
  /// Returns the time between two heartbeats.
  Clock::duration interval() const;
  void take_orders();
  void accept_new();
  void receive(Connection& from);
  void handle(Connection& from, const Message& message);
  void greet(Connection& from, const Hello& hello);
  void note(const Heartbeat& beat, Member& member);
  void lost(Connection& connection, bool garbled);
  void beat();
  void check_ranks();
  void check_silence();
  void check_progress();
  void check_interrupt();
  void interrupt();
  void suspect(FailureReport report);
  void decide(const FailureReport& report);
  void conclude(const FailureReport& report);
  void say(const Message& message);
  void flush(Connection& to);
  void end_phase();
  void publish_missing();
  FailureReport report_on(int rank, FailureKind kind) const;

  const ControlOptions& options_;
  ControlState& state_;
  const Clock::duration interval_, limit_;
  base::Descriptor listener_;
  std::vector<Connection> connections_;
  std::vector<Member> members_;
  Time now_, next_beat_, until_;
  bool listening_ = true;  ///< false for a while after accept() failed
  Phase phase_ = Phase::watching;
  bool interrupted_ = false;  ///< interrupt state that this rank's heartbeats carry
  Leave ordered_ = Leave::no;
  std::optional<FailureReport> suspect_;  ///< may be the consequence of another failure
  Time suspect_until_;
  std::optional<FailureReport> verdict_;
};

}  // namespace millrace::train
