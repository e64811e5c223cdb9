// Random bits by the row: a stream of its own for one call, keyed by two of the call's draws. Its
// words are Philox blocks side by side, which vectorise; the call's own generator makes one at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "augment/wide.h"
#include "plugins/millrace.hpp"

namespace millrace {

class BulkBits {
 public:
  /// Words come in groups of this many: fill() writes whole groups.
  static constexpr std::size_t kGroup = 256;
  static constexpr std::size_t whole(std::size_t words) {
    return (words + kGroup - 1) / kGroup * kGroup;
  }

  explicit BulkBits(Draw& draw) : key0_(draw.bits()), key1_(draw.bits()) {}

  /// The next `words` words (a multiple of kGroup).
  void fill(std::uint32_t* out, std::size_t words) {
    wide(
        [](std::uint32_t* __restrict to, std::size_t n, std::uint32_t first, std::uint32_t key_0,
           std::uint32_t key_1) MILLRACE_WIDE {
          constexpr std::uint32_t kLanes = kGroup / 4;  // blocks side by side
          for (std::size_t at = 0; at < n; at += kGroup, first += kLanes) {
            std::uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
            for (std::uint32_t i = 0; i < kLanes; ++i) {
              c0[i] = c1[i] = c2[i] = 0;
              c3[i] = first + i;
            }
            std::uint32_t k0 = key_0, k1 = key_1;
            for (int round = 0; round < 10; ++round) {  // as in millrace_rng_bits()
              for (std::uint32_t i = 0; i < kLanes; ++i) {
                const std::uint64_t a = std::uint64_t{0xD2511F53} * c0[i];
                const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c2[i];
                c0[i] = static_cast<std::uint32_t>(b >> 32) ^ c1[i] ^ k0;
                c1[i] = static_cast<std::uint32_t>(b);
                c2[i] = static_cast<std::uint32_t>(a >> 32) ^ c3[i] ^ k1;
                c3[i] = static_cast<std::uint32_t>(a);
              }
              k0 += 0x9E3779B9;
              k1 += 0xBB67AE85;
            }
            for (std::uint32_t i = 0; i < kLanes; ++i) {
              to[at + i] = c0[i];
              to[at + kLanes + i] = c1[i];
              to[at + 2 * kLanes + i] = c2[i];
              to[at + 3 * kLanes + i] = c3[i];
            }
          }
        },
        out, words, next_, key0_, key1_);
    next_ += static_cast<std::uint32_t>(words / 4);
  }

 private:
  std::uint32_t key0_, key1_;
  std::uint32_t next_ = 0;
};

}  // namespace millrace
