// Tests loader.mode: batches of noise, and batches that are handed out again.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "augment/plan/plan.h"
#include "measure/batch_history.h"
#include "millrace/loader.h"
#include "tests/pipeline/numbered.h"

namespace millrace::pipeline {
namespace {

class Counted final : public Numbered {
 public:
  using Numbered::Numbered;
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    ++reads;
    return Numbered::read(index, scratch);
  }
  mutable std::atomic<int> reads{0};
};

std::shared_ptr<const augment::Plan> plan_of(DType dtype) {
  return std::make_shared<augment::Plan>(std::vector<OpSpec>{}, Source{{6, 5}, 1},
                                         OutputOptions{dtype, Layout::chw, {0}, {1}},
                                         Resample::once);
}

LoaderOptions options_of(LoaderMode mode, int workers) {
  LoaderOptions options;
  options.mode = mode;
  options.workers = workers;
  options.batch = 8;
  options.prefetch = 2;
  options.epochs = 3;
  return options;
}

TEST(LoaderMode, SyntheticBatchesAreNoiseAndNothingIsRead) {
  for (const int workers : {0, 2}) {
    const auto reader = std::make_shared<Counted>(30);
    Loader loader(reader, plan_of(DType::f32), options_of(LoaderMode::synthetic, workers));
    std::vector<std::int64_t> counts;
    std::map<std::int64_t, int> labels;
    while (const Batch batch = loader.next()) {
      counts.push_back(batch.count());
      const auto* values = reinterpret_cast<const float*>(batch.data());
      const std::size_t size = batch.bytes() / sizeof(float);
      ASSERT_EQ(size, static_cast<std::size_t>(batch.count()) * 30);
      bool negative = false;
      bool positive = false;
      for (std::size_t i = 0; i < size; ++i) {
        ASSERT_TRUE(std::abs(values[i]) >= 0.125f && std::abs(values[i]) < 2) << values[i];
        (values[i] < 0 ? negative : positive) = true;
      }
      EXPECT_TRUE(negative && positive);
      for (std::int64_t i = 0; i < batch.count(); ++i) ++labels[batch.labels()[i]];
      EXPECT_TRUE(batch.history().units.empty()) << "nobody has worked on it";
    }
    EXPECT_EQ(counts, (std::vector<std::int64_t>{8, 8, 8, 6, 8, 8, 8, 6, 8, 8, 8, 6}));
    EXPECT_EQ(labels.size(), 10u);
    EXPECT_EQ(labels.begin()->first, 0);
    EXPECT_EQ(labels.rbegin()->first, 9);
    EXPECT_EQ(reader->reads, 0);
    EXPECT_EQ(loader.stats().busy_s, 0);
  }
}

TEST(LoaderMode, NoiseFitsEveryType) {
  const auto reader = std::make_shared<Counted>(30);
  for (const DType dtype : {DType::u8, DType::f16, DType::bf16}) {
    Loader loader(reader, plan_of(dtype), options_of(LoaderMode::synthetic, 0));
    const Batch batch = loader.next();
    std::map<std::uint16_t, int> exponents;
    std::uint16_t bits = 0;
    for (std::size_t i = 0; dtype != DType::u8 && i < batch.bytes(); i += sizeof bits) {
      std::memcpy(&bits, batch.data() + i, sizeof bits);
      ++exponents[static_cast<std::uint16_t>((bits & 0x7fff) >> (dtype == DType::f16 ? 10 : 7))];
    }
    const int one = dtype == DType::f16 ? 15 : 127;  // the exponent of 1.0
    for (const auto& [exponent, count] : exponents) {
      EXPECT_LE(exponent, one);
      EXPECT_GE(exponent, one - 3);
    }
    EXPECT_EQ(exponents.size(), dtype == DType::u8 ? 0u : 4u);
  }
}

TEST(LoaderMode, CachedBatchesComeAgain) {
  for (const int workers : {0, 2}) {
    const auto reader = std::make_shared<Counted>(60);  // 8 batches, the last one with 4 samples
    Loader loader(reader, plan_of(DType::u8), options_of(LoaderMode::cached, workers));
    const std::size_t kept = workers == 0 ? 2 : 3;  // slots
    std::vector<std::string> made;
    std::size_t batches = 0;
    for (; const Batch batch = loader.next(); ++batches) {
      const std::string bytes(reinterpret_cast<const char*>(batch.data()), batch.bytes());
      EXPECT_EQ(batch.count(), batches % 8 == 7 ? 4 : 8);
      if (batches < kept) {
        EXPECT_FALSE(batch.history().units.empty());
        made.push_back(bytes);
        continue;
      }
      EXPECT_EQ(bytes, made[batches % kept].substr(0, bytes.size())) << batches;
      EXPECT_TRUE(batch.history().units.empty());
    }
    EXPECT_EQ(batches, 24u);
    EXPECT_EQ(reader->reads, static_cast<int>(kept * 8));
    EXPECT_NE(made[0], made[1]);
  }
}

TEST(LoaderMode, ACallerMayHoldAllSlotsButNotMore) {
  for (const LoaderMode mode : {LoaderMode::synthetic, LoaderMode::cached}) {
    const auto reader = std::make_shared<Counted>(60);
    Loader loader(reader, plan_of(DType::u8), options_of(mode, 2));
    std::vector<Batch> held;
    for (int i = 0; i < 3; ++i) held.push_back(loader.next());
    EXPECT_THROW(loader.next(), Error);
    held.erase(held.begin());
    EXPECT_TRUE(loader.next());
    loader.interrupt();
    EXPECT_FALSE(loader.next());
  }
}

}  // namespace
}  // namespace millrace::pipeline
