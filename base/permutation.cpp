// Permutes numbers by a Feistel network.
#include "base/permutation.h"

#include <algorithm>
#include <bit>

#include "base/rng.h"

namespace millrace::base {
namespace {

constexpr int kRounds = 8;

}  // namespace

Permutation::Permutation(std::uint64_t count, std::uint64_t key) : count_(count), key_(key) {
  const int bits = std::max(2, static_cast<int>(std::bit_width(count > 0 ? count - 1 : 0)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

std::uint64_t Permutation::mixed(std::uint64_t half, int round) const {
  return mix64(key_ + half * 0x9FB21C651E98DF25 + static_cast<std::uint64_t>(round)) >> 20;
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

}  // namespace millrace::base
