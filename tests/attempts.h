// Checks that compare clocks. Other programs may disturb one measurement; a defect fails all.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>

namespace millrace::test {

inline constexpr int kAttempts = 5;
inline constexpr int kMeasurements = 20;

/// Runs `check` until it passes, at most kAttempts times. The failures of the last attempt are the
/// test's; those before it are printed.
template <class Check>
void in_attempts(Check check) {
  using Intercept = testing::ScopedFakeTestPartResultReporter;
  for (int attempt = 1; attempt < kAttempts; ++attempt) {
    testing::TestPartResultArray results;
    {
      const Intercept intercept(Intercept::INTERCEPT_ALL_THREADS, &results);
      check();
    }
    bool passed = true;
    for (int i = 0; i < results.size(); ++i) {
      const testing::TestPartResult& result = results.GetTestPartResult(i);
      if (!result.failed()) continue;
      passed = false;
      std::cout << "attempt " << attempt << ": " << result.message() << '\n';
    }
    if (passed) return;
  }
  check();
}

/// Returns whether one of at most kMeasurements calls of `measure` is within `tolerance` of
/// `expected`, relative to it.
template <class Measure>
testing::AssertionResult close_to(double expected, double tolerance, Measure measure) {
  double least = 1e9;
  for (int attempt = 0; attempt < kMeasurements && least > tolerance; ++attempt)
    least = std::min(least, std::abs(measure() / expected - 1));
  if (least <= tolerance) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the closest of " << kMeasurements << " measurements is "
                                     << 100 * least << "% from " << expected;
}

}  // namespace millrace::test
