// Utilisation through NVML: with a fake library, the driver's, or none.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "strategies/trainer/device_accounting.h"

namespace millrace::train {
namespace {

TEST(Utilization, IsTheMeanOfWhatNvmlSays) {
  UtilizationSampler sampler("0000:1b:00.0", 0.001, MILLRACE_FAKE_NVML);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto utilization = sampler.stop();
  ASSERT_TRUE(utilization.has_value());
  EXPECT_NEAR(utilization->gpu, 0.75, 1e-9);
  EXPECT_NEAR(utilization->memory, 0.20, 1e-9);
  EXPECT_GT(utilization->samples, 2u);
}

TEST(Utilization, IsMissingWhereItCannotBeRead) {
  EXPECT_FALSE(UtilizationSampler("0000:1b:00.0", 0.001, "libno-such-nvml.so.1").stop());
  EXPECT_FALSE(UtilizationSampler("0000:ff:00.0", 0.001, MILLRACE_FAKE_NVML).stop());
  EXPECT_FALSE(UtilizationSampler("", 0.001, MILLRACE_FAKE_NVML).stop());
}

TEST(Utilization, EndsAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  UtilizationSampler sampler("0000:1b:00.0", 3600, MILLRACE_FAKE_NVML);
  static_cast<void>(sampler.stop());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

}  // namespace
}  // namespace millrace::train
