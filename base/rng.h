// Keys of the counter-based random numbers. A draw is a function of (seed; epoch, sample, op,
// index) and of nothing else, so any worker can make any sample's draws in any order (determinism
// contract). The generator is part of the plugin interface (include/millrace/millrace.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "millrace/transform.h"

namespace millrace::base {

/// Spreads every input bit over the whole word: the 64-bit finaliser of splitmix64.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// Returns the FNV-1a hash of an op's name. It keys the op's draws, so that adding other ops to the
/// chain does not change them.
constexpr std::uint32_t op_id(std::string_view name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

/// Returns the random stream of one op for one sample.
constexpr millrace_rng stream(const SampleKey& key, std::uint32_t op) {
  const std::uint64_t seed = mix64(key.seed);
  return {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
          {static_cast<std::uint32_t>(key.sample), key.epoch, op,
           static_cast<std::uint32_t>(key.sample >> 32) << 16},
          {},
          4};
}

}  // namespace millrace::base
