// Computes the order of samples in an epoch.
#include "pipeline/loader/sampler.h"

#include <algorithm>
#include <bit>

#include "base/rng.h"

namespace millrace::pipeline {
namespace {

constexpr int kRounds = 8;

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

Permutation::Permutation(std::uint64_t count, std::uint64_t key) : count_(count), key_(key) {
  const int bits = std::max(2, static_cast<int>(std::bit_width(count > 0 ? count - 1 : 0)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

std::uint64_t Permutation::mixed(std::uint64_t half, int round) const {
  return base::mix64(key_ + half * 0x9FB21C651E98DF25 + static_cast<std::uint64_t>(round)) >> 20;
}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  const std::uint64_t high_mask = (std::uint64_t{1} << high_bits_) - 1;
  const std::uint64_t low_mask = (std::uint64_t{1} << low_bits_) - 1;
  std::uint64_t value = position;
  do {
    std::uint64_t high = value >> low_bits_;
    std::uint64_t low = value & low_mask;
    for (int round = 0; round < kRounds; round += 2) {
      high ^= mixed(low, round) & high_mask;
      low ^= mixed(high, round + 1) & low_mask;
    }
    value = high << low_bits_ | low;
  } while (value >= count_);
  return value;
}

std::uint64_t Permutation::inverse(std::uint64_t value) const {
  const std::uint64_t high_mask = (std::uint64_t{1} << high_bits_) - 1;
  const std::uint64_t low_mask = (std::uint64_t{1} << low_bits_) - 1;
  std::uint64_t position = value;
  do {
    std::uint64_t high = position >> low_bits_;
    std::uint64_t low = position & low_mask;
    for (int round = kRounds - 2; round >= 0; round -= 2) {
      low ^= mixed(high, round + 1) & low_mask;
      high ^= mixed(low, round) & high_mask;
    }
    position = high << low_bits_ | low;
  } while (position >= count_);
  return position;
}

Sampler::Sampler(std::uint64_t count, Shuffle shuffle, std::uint64_t seed, std::uint32_t epoch)
    : count_(count),
      shuffle_(clamped(shuffle, count)),
      key_(base::mix64(base::mix64(seed) ^ (std::uint64_t{epoch} + 1) * 0xD6E8FEB86659FD93)),
      order_(window_count(count, shuffle_), key_) {
  if (shuffle_.kind != Shuffle::Kind::window || count == 0) return;
  const std::uint64_t windows = window_count(count, shuffle_);
  missing_ = windows * shuffle_.window - count_;
  short_end_ = (order_.inverse(windows - 1) + 1) * shuffle_.window - missing_;
}

std::uint64_t Sampler::operator()(std::uint64_t position) const {
  if (shuffle_.kind == Shuffle::Kind::none) return position;
  if (shuffle_.kind == Shuffle::Kind::global) return order_(position);
  // Behind the short window, positions count as if it were full.
  const std::uint64_t place = position < short_end_ ? position : position + missing_;
  const std::uint64_t window = order_(place / shuffle_.window);
  const std::uint64_t first = window * shuffle_.window;
  const std::uint64_t length = std::min(shuffle_.window, count_ - first);
  return first + Permutation(length, base::mix64(key_ ^ (window + 1)))(place % shuffle_.window);
}

}  // namespace millrace::pipeline
