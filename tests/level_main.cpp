// gtest's main() for tests that run at several SIMD levels. If MILLRACE_SIMD names a level that
// this processor lacks, exits with the status that ctest counts as a skipped test.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/simd.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr int kSkipped = 77;
  const char* asked = std::getenv("MILLRACE_SIMD");
  for (const millrace::base::Simd level :
       {millrace::base::Simd::avx2, millrace::base::Simd::avx512})
    if (asked != nullptr && millrace::base::name_of(level) == asked &&
        level > millrace::base::simd_supported()) {
      std::printf("skipped: this processor lacks %s\n", asked);
      return kSkipped;
    }
  return RUN_ALL_TESTS();
}
