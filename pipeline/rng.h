// Counter-based random numbers: a draw is a function of (seed; epoch, sample, op, index) and of
// nothing else, so any worker can make any sample's draws in any order (contract C1).
//
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace millrace {

using PhiloxBlock = std::array<std::uint32_t, 4>;

/// One block of Philox4x32-10: 128 random bits for a 128-bit counter under a 64-bit key.
constexpr PhiloxBlock philox(PhiloxBlock counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

/// 64-bit finaliser of splitmix64: spreads every input bit over the whole word.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// FNV-1a: the id of an op is the hash of its name, so that other ops of the chain don't change it.
constexpr std::uint32_t op_id(std::string_view name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

/// Names one sample's place in a run: what its random numbers depend on besides the op.
struct SampleKey {
  std::uint64_t seed = 0;
  std::uint32_t epoch = 0;
  std::uint64_t sample = 0;  ///< index in the data set; the lower 48 bits count
};

/// The draws of one op for one sample, in the order in which the op asks for them.
class Draw {
 public:
  constexpr Draw(const SampleKey& key, std::uint32_t op) : key_(mix64(key.seed)) {
    counter_ = {static_cast<std::uint32_t>(key.sample), key.epoch, op,
                static_cast<std::uint32_t>(key.sample >> 32) << 16};
  }

  constexpr std::uint32_t bits() {
    if (used_ == 4) {
      block_ = philox(counter_, static_cast<std::uint32_t>(key_),
                      static_cast<std::uint32_t>(key_ >> 32));
      ++counter_[3];
      used_ = 0;
    }
    return block_[used_++];
  }
  /// Uniform on [0, 1), a multiple of 2^-32.
  constexpr double uniform() { return bits() * 0x1p-32; }
  /// Uniform on [low, high).
  constexpr double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Uniform on 0 .. count-1 (bias below count * 2^-32).
  constexpr std::uint32_t integer(std::uint32_t count) {
    return static_cast<std::uint32_t>((std::uint64_t{bits()} * count) >> 32);
  }
  /// True with probability p.
  constexpr bool chance(double p) { return uniform() < p; }

 private:
  std::uint64_t key_;
  PhiloxBlock counter_{};
  PhiloxBlock block_{};
  unsigned used_ = 4;
};

}  // namespace millrace
