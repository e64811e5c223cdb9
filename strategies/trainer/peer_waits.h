// Accounts for the time that ranks spend waiting for each other and for the network.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/private_api.h"

namespace millrace::train {

/// Seconds that other ranks have waited for one rank, by the kind of work in which it took longer.
struct PeerWait {
  double load = 0, update = 0, other = 0;
  double total() const { return load + update + other; }
};

/// Attributes a wait for the `late` rank to kinds of work. A rank that took `mine` (seconds per
/// kind since all left together, without waiting) has waited `seconds` in all. Adds to `sum`, to
/// each kind in proportion to the late rank's excess in it.
MILLRACE_PRIVATE_API void attribute_wait(double seconds, const PeerWait& late, const PeerWait& mine,
                                         PeerWait& sum);

/// A rank's work between two collectives, all of which the ranks leave together.
struct RankWork {
  double seconds = 0;  ///< from leaving the one to entering the other
  PeerWait kinds;      ///< these seconds by kind; what is missing is of no named kind
};

/// Sums of waits, by their causes.
class MILLRACE_PRIVATE_API PeerWaits {
 public:
  explicit PeerWaits(std::size_t ranks) : late_(ranks) {}

  /// Adds one collective. `work` is that of every rank before it; rank `mine`, this process, then
  /// waited in it for `waited_s`. The rank that entered last is the one that the others waited for.
  /// Attributes the rest of this process's wait to the network.
  void add(std::span<const RankWork> work, std::size_t mine, double waited_s);

  /// Returns what the other ranks have waited for each, by rank.
  const std::vector<PeerWait>& late() const { return late_; }
  /// Returns the seconds that this process has waited in collectives although no rank was late.
  double network_s() const { return network_s_; }

 private:
  std::vector<PeerWait> late_;
  double network_s_ = 0;
};

/// Says what most of the ranks' waiting was for: "network", or the kind of work in which the
/// straggler, the rank with the largest total, took longer: "load", "update" or "other". Empty if
/// no rank has waited. `network_s` is summed over the ranks.
MILLRACE_PRIVATE_API std::string cause_of_waits(const std::vector<PeerWait>& late,
                                                double network_s);
/// Returns the rank that the others have waited for most; 0 if they have not waited.
MILLRACE_PRIVATE_API std::size_t straggler_of(const std::vector<PeerWait>& late);

}  // namespace millrace::train
