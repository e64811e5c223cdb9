// A pseudo-random order of numbers: a keyed permutation with O(1) memory and O(1) seek (determinism
// contract).
#pragma once

#include <cstdint>

#include "base/private_api.h"

namespace millrace::base {

/// A pseudo-random permutation of 0 .. count-1 chosen by `key`: an unbalanced Feistel network on
/// the smallest power of two that holds `count`, followed along its cycle until it lands inside
/// (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
class MILLRACE_PRIVATE_API Permutation {
 public:
  Permutation(std::uint64_t count, std::uint64_t key);
  /// Returns the value at `position`; `position` < count.
  std::uint64_t operator()(std::uint64_t position) const;
  /// Returns the position of `value`; `value` < count.
  std::uint64_t inverse(std::uint64_t value) const;

 private:
  std::uint64_t mixed(std::uint64_t half, int round) const;

  std::uint64_t count_;
  std::uint64_t key_;
  int high_bits_;
  int low_bits_;
};

}  // namespace millrace::base
