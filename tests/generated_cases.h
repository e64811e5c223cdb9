// Numbers of generated cases.
#pragma once

namespace millrace::test {

/// Returns how many of `count` generated cases a test takes: all of them, but a quarter under a
/// sanitizer, where each takes 7 to 50 times as long. The default build takes all.
constexpr int generated_cases(int count) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return count / 4;
#else
  return count;
#endif
}

}  // namespace millrace::test
