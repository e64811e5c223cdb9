// Output of the ranks of one host, as their launcher prints it.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "millrace/error.h"
#include "strategies/control/socket.h"

namespace millrace::tools {

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
  /// Returns whether a rank only reported another one's error.
  bool relayed(int rank) const { return relaying_.count(static_cast<std::size_t>(rank)) > 0; }

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<RankPipe> pipes_;
  std::vector<std::string> texts_;  ///< by rank, from pipes that are still open
  std::map<std::string, std::vector<std::size_t>> waiting_;  ///< texts, and the ranks with each
  std::vector<std::string> order_;                           ///< keys of waiting_, by arrival
  std::set<std::string> printed_;
  std::set<std::size_t> relaying_;
  Clock::time_point due_;
};

// Runs this program as several ranks of one distributed run on this host.

/// Runs `millrace ARGUMENTS` as `count` child processes with torchrun's environment. Rank 0
/// inherits this process's stdout and stderr. The others' stderr is printed with "[rank R] " before
/// each line, and their stdout is dropped. An error that ranks share is printed once. The ranks
/// meet at the loopback address, with a key in their environment. The first Ctrl-C or SIGTERM is
/// passed on to all; the second one kills them, as the death of this process does. When one rank
/// fails, the others get some seconds to end by themselves. Returns the first failing rank's exit
/// code. Throws RunError if a signal killed it, or if a rank cannot be started.
Exit launch_ranks(int count, const std::vector<std::string>& arguments);

}  // namespace millrace::tools
