// One SIMD level for a while.
#pragma once

#include <vector>

#include "base/simd.h"

namespace millrace::test {

class ForcedLevel {
 public:
  explicit ForcedLevel(Simd level) : before_(simd_level()) { set_simd_level(level); }
  ~ForcedLevel() { set_simd_level(before_); }
  ForcedLevel(const ForcedLevel&) = delete;
  ForcedLevel& operator=(const ForcedLevel&) = delete;

 private:
  Simd before_;
};

/// SIMD levels that this processor supports.
inline std::vector<Simd> simd_levels() {
  std::vector<Simd> levels;
  for (const Simd level : {Simd::scalar, Simd::avx2, Simd::avx512})
    if (level <= simd_supported()) levels.push_back(level);
  return levels;
}

}  // namespace millrace::test
