// Background thread of the control channel: sockets, heartbeats and the verdict.
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
