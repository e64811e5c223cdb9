// Child processes: this program again, commands of the user, and the ranks of one host.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "millrace/error.h"
#include "strategies/control/socket.h"

namespace millrace::tools {

/// How a child process of this program ended.
struct ChildResult {
  int exit_code = 0;      ///< 128 + N after signal N
  double cpu_s = 0;       ///< user and system time, including its own children
  std::string last_line;  ///< its last line of output, for messages
};

/// Runs millrace with `arguments`, with its stdout and stderr in `log`. Passes SIGTERM on if this
/// process is interrupted. The child dies with this process, even if that is killed. Call it from
/// the main thread, because the child dies when the calling thread ends. Calls `meanwhile` some 50
/// times per second. Throws RunError if the child cannot be started.
ChildResult run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                      const std::function<void()>& meanwhile = {});

/// A command of the user, and where it runs.
struct CommandChild {
  std::vector<std::string> words;  ///< program, looked up in PATH, and its arguments
  std::filesystem::path folder;    ///< where it runs
  std::filesystem::path out;       ///< file for its stdout
  std::filesystem::path err;       ///< file for its stderr
  double timeout_s = 0;            ///< 0: none
};

/// How a command ended, with all of its processes.
struct CommandEnd {
  int exit_code = 0;       ///< 128 + N after signal N
  int start_error = 0;     ///< errno if the program could not be executed
  bool timed_out = false;  ///< exit_code then says how it ended
  double wall_s = 0;       ///< from its start to its end
  double cpu_s = 0;        ///< user and system time of all its processes
};

/// Runs the command in a process group of its own, with /dev/null as stdin. Passes SIGINT on if
/// this process is interrupted, and sends SIGTERM after the timeout; five seconds later all of its
/// processes are killed. Processes that it leaves behind are killed when it ends, and all of them
/// when this process dies, even by SIGKILL. Calls `meanwhile` some 50 times per second. Throws
/// RunError if no process can be started.
CommandEnd run_command(const CommandChild& command, const std::function<void()>& meanwhile = {});

/// Returns whether a program of that name or path can be executed from `folder`.
bool program_exists(const std::string& name, const std::filesystem::path& folder);

/// The read end of a rank's pipe; never blocks.
class RankPipe {
 public:
  RankPipe() = default;
  explicit RankPipe(base::Descriptor pipe);

  /// Returns the descriptor; -1 after the end of the stream.
  int fd() const { return pipe_.get(); }
  /// Returns the bytes that arrived since the last call.
  std::string take();

 private:
  base::Descriptor pipe_;
};

/// Prints whole lines of a rank's stderr, with "[rank R] " before each.
class RankLines {
 public:
  RankLines() = default;
  RankLines(base::Descriptor pipe, int rank);

  int fd() const { return pipe_.fd(); }
  /// Prints the lines that have arrived.
  void pump();
  /// Prints an unfinished last line.
  void end_line();

 private:
  void print_line();

  RankPipe pipe_;
  std::string prefix_;
  std::string line_;
};

/// Collects the errors that ranks end with. Prints an error common to all once, without prefix. If
/// errors differ, prints each text once with its ranks: "[rank 1] millrace: ..." or "[ranks 0, 2]
/// ...".
class RankErrors {
 public:
  explicit RankErrors(std::size_t ranks) : pipes_(ranks), texts_(ranks) {}

  void watch(int rank, base::Descriptor pipe) {
    pipes_[static_cast<std::size_t>(rank)] = RankPipe(std::move(pipe));
  }
  /// Returns the pipes for poll().
  std::vector<int> fds() const;
  /// Reads available text, and prints errors that have waited a second for other ranks.
  void pump();
  /// Prints the rest.
  void print();
  /// Returns whether all ranks have called tell_watched().
  bool all_watched() const { return watched_.size() == pipes_.size(); }
  /// Discards the error of a rank that is made to end: it only reports that.
  void drop(int rank) { dropped_.insert(static_cast<std::size_t>(rank)); }
  /// Returns whether a rank only reported another one's error.
  bool relayed(int rank) const { return relaying_.count(static_cast<std::size_t>(rank)) > 0; }

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<RankPipe> pipes_;
  std::vector<std::string> texts_;  ///< by rank, from pipes that are still open
  std::map<std::string, std::vector<std::size_t>> waiting_;  ///< texts, and the ranks with each
  std::vector<std::string> order_;                           ///< keys of waiting_, by arrival
  std::set<std::string> printed_;
  std::set<std::size_t> relaying_, watched_, dropped_;
  Clock::time_point due_;
};

/// Runs `millrace ARGUMENTS` as `count` child processes with torchrun's environment. Rank 0
/// inherits this process's stdout and stderr. The others' stderr is printed with "[rank R] " before
/// each line, and their stdout is dropped. An error that ranks share is printed once. The ranks
/// meet at the loopback address, with a key in their environment. The first Ctrl-C or SIGTERM is
/// passed on to all; the second one kills them, as the death of this process does. When one rank
/// fails, the others are made to end: at once, or if they watch each other, after some seconds in
/// which they can end by themselves. Returns the first failing rank's exit code. Throws RunError if
/// a signal killed it, or if a rank cannot be started.
Exit launch_ranks(int count, const std::vector<std::string>& arguments);

}  // namespace millrace::tools
