// Numbers of generated cases.
#pragma once

namespace millrace::test {

/// Returns how many of `count` generated cases a test takes: all of them, but a quarter under a
/// sanitizer, where each takes 8 to 20 times as long.
constexpr int generated_cases(int count) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return count / 4;
#else
  return count;
#endif
}

}  // namespace millrace::test
