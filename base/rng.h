// Counter-based random numbers: a draw is a function of (seed; epoch, sample, op, index) and of
// nothing else, so any worker can make any sample's draws in any order (determinism contract). The
// generator itself is part of the plugin interface (include/millrace/millrace.h); this is how its
// key is made.
#pragma once

#include <cstdint>
#include <string_view>

#include "millrace/transform.h"

namespace millrace::base {

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

/// The random numbers of one op for one sample.
constexpr millrace_rng stream(const SampleKey& key, std::uint32_t op) {
  const std::uint64_t seed = mix64(key.seed);
  return {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
          {static_cast<std::uint32_t>(key.sample), key.epoch, op,
           static_cast<std::uint32_t>(key.sample >> 32) << 16},
          {},
          4};
}

}  // namespace millrace::base
