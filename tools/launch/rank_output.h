// Output of the ranks of one host, as their launcher prints it.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "strategies/control/socket.h"

namespace millrace::tools {

/// A pipe that a rank writes to; this end never blocks.
class RankPipe {
 public:
  RankPipe() = default;
  explicit RankPipe(train::Fd pipe);

  /// -1 once it is at its end.
  int fd() const { return pipe_.get(); }
  /// Returns the bytes that arrived since the last call.
  std::string take();

 private:
  train::Fd pipe_;
};

/// Whole lines of a rank's stderr, with "[rank R] " before each.
class RankLines {
 public:
  RankLines() = default;
  RankLines(train::Fd pipe, int rank);

  int fd() const { return pipe_.fd(); }
  /// Passes on what there is.
  void pump();
  /// Prints an unfinished last line.
  void end_line();

 private:
  void print_line();

  RankPipe pipe_;
  std::string prefix_;
  std::string line_;
};

/// The errors that ranks end with. What all of them say is printed once and bare; where they
/// differ, each text is printed once, with its ranks: "[rank 1] millrace: ..." or "[ranks 0, 2]
/// ...".
class RankErrors {
 public:
  explicit RankErrors(std::size_t ranks) : pipes_(ranks), texts_(ranks) {}

  void watch(int rank, train::Fd pipe) {
    pipes_[static_cast<std::size_t>(rank)] = RankPipe(std::move(pipe));
  }
  /// The pipes that poll() is to look at.
  std::vector<int> fds() const;
  /// Reads what there is, and prints what has stood for a second without the other ranks' word.
  void pump();
  /// Prints the rest.
  void print();
  /// Whether a rank has only told of another one's error.
  bool relayed(int rank) const { return relaying_.count(static_cast<std::size_t>(rank)) > 0; }

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<RankPipe> pipes_;
  std::vector<std::string> texts_;  ///< by rank, of pipes that are not at their end
  std::map<std::string, std::vector<std::size_t>> waiting_;  ///< whole texts and who said them
  std::vector<std::string> order_;                           ///< of waiting_, as they came
  std::set<std::string> printed_;
  std::set<std::size_t> relaying_;
  Clock::time_point due_;
};

}  // namespace millrace::tools
