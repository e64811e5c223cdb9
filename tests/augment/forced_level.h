// Sets the SIMD level in tests.
#pragma once

#include <vector>

#include "base/simd.h"

namespace millrace::test {

class ForcedLevel {
 public:
  explicit ForcedLevel(base::Simd level) : before_(base::simd_level()) {
    base::set_simd_level(level);
  }
  ~ForcedLevel() { base::set_simd_level(before_); }
  ForcedLevel(const ForcedLevel&) = delete;
  ForcedLevel& operator=(const ForcedLevel&) = delete;

 private:
  base::Simd before_;
};

/// Returns the SIMD levels that this processor supports.
inline std::vector<base::Simd> simd_levels() {
  std::vector<base::Simd> levels;
  for (const base::Simd level : {base::Simd::scalar, base::Simd::avx2, base::Simd::avx512})
    if (level <= base::simd_supported()) levels.push_back(level);
  return levels;
}

}  // namespace millrace::test
