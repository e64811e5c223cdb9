// Out of device memory: estimates the batch that would fit, from two smaller ones.
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "strategies/trainer/device_accounting.h"

namespace millrace::train {
namespace {

TEST(SamplesThatFit, LieOnTheLineThroughTwo) {
  // 100 bytes of weights, 7 bytes per sample.
  const MemoryUse small{4, 128}, large{8, 156};
  EXPECT_EQ(samples_that_fit(small, large, 800), 100);
  EXPECT_EQ(samples_that_fit(small, large, 799), 99);
  EXPECT_EQ(samples_that_fit(small, large, 107), 1);
  EXPECT_EQ(samples_that_fit(small, large, 106), std::nullopt);
  // 140 GB, 70 MB per sample: no intermediate overflow.
  EXPECT_EQ(samples_that_fit({256, 18'920'000'000}, {512, 36'840'000'000}, 141'000'000'000), 2000);
}

TEST(SamplesThatFit, ALineThatDoesNotRiseTellsNothing) {
  EXPECT_EQ(samples_that_fit({4, 128}, {8, 128}, 800), std::nullopt);
  EXPECT_EQ(samples_that_fit({4, 128}, {8, 100}, 800), std::nullopt);
  EXPECT_EQ(samples_that_fit({8, 128}, {8, 156}, 800), std::nullopt);
}

/// A device with 1000 bytes.
class Fake final : public DeviceMemory {
 public:
  void reset() override { peak_ = 0; }
  std::uint64_t peak() const override { return peak_; }
  std::uint64_t available() const override { return 1000; }
  void use(std::int64_t samples) {
    steps.push_back(samples);
    peak_ = static_cast<std::uint64_t>(200 + 10 * samples);
    if (peak_ > available()) throw std::runtime_error("out of memory");
  }
  std::vector<std::int64_t> steps;

 private:
  std::uint64_t peak_ = 0;
};

TEST(FindSamplesThatFit, MeasuresTwoSmallSteps) {
  Fake memory;
  const auto step = [&](std::int64_t samples) { memory.use(samples); };
  EXPECT_EQ(find_samples_that_fit(128, memory, step), 80);
  EXPECT_EQ(memory.steps, (std::vector<std::int64_t>{16, 32}));
}

TEST(FindSamplesThatFit, SaysNothingWhereItCannotBeMeasured) {
  Fake memory;
  const auto step = [&](std::int64_t samples) { memory.use(samples); };
  EXPECT_EQ(find_samples_that_fit(15, memory, step), std::nullopt) << "too few";
  EXPECT_TRUE(memory.steps.empty());
  const auto fails = [&](std::int64_t samples) {
    memory.steps.push_back(samples);
    throw std::runtime_error("for another reason");
  };
  EXPECT_EQ(find_samples_that_fit(800, memory, fails), std::nullopt);
  EXPECT_EQ(memory.steps, (std::vector<std::int64_t>{100, 50, 25, 12, 6, 3}));
}

TEST(FindSamplesThatFit, HalvesUntilItFits) {
  Fake memory;
  const auto step = [&](std::int64_t samples) { memory.use(samples); };
  EXPECT_EQ(find_samples_that_fit(1600, memory, step), 80);
  EXPECT_EQ(memory.steps, (std::vector<std::int64_t>{200, 100, 50, 100, 25, 50}));
}

}  // namespace
}  // namespace millrace::train
