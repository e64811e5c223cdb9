// The background thread of a control channel: sockets, heartbeats and the verdict.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "strategies/control/control_channel.h"

namespace millrace::train {

class ControlLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /// Rank 0.
  ControlLoop(const ControlOptions& options, ControlState& state, Fd listener);
  /// The others, once rank 0 has answered; `reader` may hold what it said after that.
  ControlLoop(const ControlOptions& options, ControlState& state, Fd server, MessageReader reader,
              const Welcome& welcome);

  /// Returns after the goodbye, or after on_failure.
  void run();

 private:
  struct Connection {
    Fd fd;
    MessageReader reader;
    std::string out;  ///< not sent yet
    int rank = -1;    ///< -1: has not said hello
    Time heard;
  };
  /// What is known of a rank.
  struct Member {
    enum class Presence { missing, here, left } presence = Presence::missing;
    std::uint64_t pid = 0;
    std::string host;
    std::uint64_t step = 0;
    std::uint64_t stamp = 0;
    bool in_collective = false;
    bool interrupted = false;  ///< knows that the run is to end
    Time since;                ///< of the last progress
  };
  enum class Phase {
    watching,
    telling,  ///< rank 0: the verdict is out, and the others are given time to read it
    leaving,  ///< the goodbye is on its way
    asking,   ///< an error of this rank's: rank 0 says whether it came first
    over,
  };

  bool serves() const { return options_.rank == 0; }
  void wait();
  void forgive(Clock::duration stood_still);
  /// Between two heartbeats.
  Clock::duration interval() const;
  void take_orders();
  void accept_new();
  void receive(Connection& from);
  void handle(Connection& from, const Message& message);
  void greet(Connection& from, const Hello& hello);
  void note(const Heartbeat& beat, Member& member);
  void lost(Connection& connection, bool garbled);
  void beat();
  void judge();
  void judge_silence();
  void judge_progress();
  void judge_interrupt();
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
  Fd listener_;
  std::vector<Connection> connections_;
  std::vector<Member> members_;
  Time now_, next_beat_, until_;
  bool listening_ = true;  ///< false for a while after accept() has failed
  Phase phase_ = Phase::watching;
  bool interrupted_ = false;  ///< this rank's state, which its heartbeats carry
  Leave ordered_ = Leave::no;
  std::optional<FailureReport> suspect_;  ///< an error that may only follow from another failure
  Time suspect_until_;
  std::optional<FailureReport> verdict_;
};

}  // namespace millrace::train
