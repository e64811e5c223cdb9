// The ranks and replicas that share a strategy's work, and what they have waited for each other.
// The defaults are those of a single rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strategies/trainer/peer_waits.h"

namespace millrace::train {

class Ranks {
 public:
  virtual ~Ranks() = default;

  /// Returns every rank's text, by rank. All must call it in the same order.
  virtual std::vector<std::string> gather(const std::string& mine) { return {mine}; }
  /// Returns what the other ranks have waited for each, by rank; empty for a single rank.
  virtual std::vector<PeerWait> peer_waits() const { return {}; }
  /// Returns the seconds that this rank has waited in collectives although no rank was late.
  virtual double network_wait_s() const { return 0; }
  /// Returns the samples that each replica of this process has been given; empty without replicas.
  virtual std::vector<std::uint64_t> replica_samples() const { return {}; }
  /// Ends the work with the strategy. On several ranks, tells the others that this one has not
  /// died; `reason` is its error, empty for a regular end.
  virtual void end(const std::string& /*reason*/) {}
};

}  // namespace millrace::train
