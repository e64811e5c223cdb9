// Attributes waits to ranks, kinds of work and the network.
#include "strategies/trainer/peer_waits.h"

#include <algorithm>

namespace millrace::train {

void attribute_wait(double seconds, const PeerWait& late, const PeerWait& mine, PeerWait& sum) {
  const double load = std::max(0.0, late.load - mine.load);
  const double update = std::max(0.0, late.update - mine.update);
  const double other = std::max(0.0, late.other - mine.other);
  const double all = load + update + other;
  sum.load += all > 0 ? seconds * load / all : 0;
  sum.update += all > 0 ? seconds * update / all : 0;
  sum.other += all > 0 ? seconds * other / all : seconds;
}

void PeerWaits::add(std::span<const RankWork> work, std::size_t mine, double waited_s) {
  const auto last = static_cast<std::size_t>(
      std::max_element(work.begin(), work.end(),
                       [](const RankWork& a, const RankWork& b) { return a.seconds < b.seconds; }) -
      work.begin());
  for (const RankWork& one : work)
    attribute_wait(work[last].seconds - one.seconds, work[last].kinds, one.kinds, late_[last]);
  network_s_ += std::max(0.0, waited_s - (work[last].seconds - work[mine].seconds));
}

std::size_t straggler_of(const std::vector<PeerWait>& late) {
  const auto less = [](const PeerWait& a, const PeerWait& b) { return a.total() < b.total(); };
  return static_cast<std::size_t>(std::max_element(late.begin(), late.end(), less) - late.begin());
}

std::string cause_of_waits(const std::vector<PeerWait>& late, double network_s) {
  double for_ranks = 0;
  for (const PeerWait& one : late) for_ranks += one.total();
  if (for_ranks + network_s <= 0) return {};
  if (network_s > for_ranks) return "network";
  const PeerWait& most = late[straggler_of(late)];
  if (most.load >= std::max(most.update, most.other)) return "load";
  return most.update >= most.other ? "update" : "other";
}

}  // namespace millrace::train
