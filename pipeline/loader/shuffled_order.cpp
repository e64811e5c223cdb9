// Computes the order of samples in an epoch.
#include "pipeline/loader/shuffled_order.h"

#include <algorithm>

#include "base/rng.h"

namespace millrace::pipeline {
namespace {

/// Limits a window to the size of the data set.
Shuffle clamped(Shuffle shuffle, std::uint64_t count) {
  if (shuffle.kind == Shuffle::Kind::window)
    shuffle.window = std::min(shuffle.window, std::max<std::uint64_t>(1, count));
  return shuffle;
}

std::uint64_t window_count(std::uint64_t count, const Shuffle& shuffle) {
  if (shuffle.kind != Shuffle::Kind::window) return count;
  return (count + shuffle.window - 1) / shuffle.window;
}

}  // namespace

ShuffledOrder::ShuffledOrder(std::uint64_t count, Shuffle shuffle, std::uint64_t seed,
                             std::uint32_t epoch)
    : count_(count),
      shuffle_(clamped(shuffle, count)),
      key_(base::mix64(base::mix64(seed) ^ (std::uint64_t{epoch} + 1) * 0xD6E8FEB86659FD93)),
      order_(window_count(count, shuffle_), key_) {
  if (shuffle_.kind != Shuffle::Kind::window || count == 0) return;
  const std::uint64_t windows = window_count(count, shuffle_);
  missing_ = windows * shuffle_.window - count_;
  short_end_ = (order_.inverse(windows - 1) + 1) * shuffle_.window - missing_;
}

std::uint64_t ShuffledOrder::operator()(std::uint64_t position) const {
  if (shuffle_.kind == Shuffle::Kind::none) return position;
  if (shuffle_.kind == Shuffle::Kind::global) return order_(position);
  // Behind the short window, positions count as if it were full.
  const std::uint64_t place = position < short_end_ ? position : position + missing_;
  const std::uint64_t window = order_(place / shuffle_.window);
  const std::uint64_t first = window * shuffle_.window;
  const std::uint64_t length = std::min(shuffle_.window, count_ - first);
  return first +
         base::Permutation(length, base::mix64(key_ ^ (window + 1)))(place % shuffle_.window);
}

}  // namespace millrace::pipeline
