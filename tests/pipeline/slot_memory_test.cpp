// Tests slots in a device strategy's memory: each batch lies in it, and it is freed when the last
// batch is.
#include "pipeline/loader/slot_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "augment/plan/plan.h"
#include "millrace/error.h"
#include "millrace/loader.h"
#include "plugins/host/registry.h"
#include "tests/pipeline/numbered.h"

namespace millrace::pipeline {
namespace {

class Lent final : public SlotMemory {
 public:
  explicit Lent(std::size_t most = SIZE_MAX) : left_(most) {}
  void* allocate(std::size_t size) override {
    if (size > left_) throw RunError("none left");
    left_ -= size;
    void* const memory = std::aligned_alloc(64, size);
    std::memset(memory, 0xEE, size);
    out[static_cast<std::byte*>(memory)] = size;
    ++allocations;
    return memory;
  }
  void release(void* memory, std::size_t size) noexcept override {
    const auto it = out.find(static_cast<std::byte*>(memory));
    if (it == out.end() || it->second != size) return;  // the test sees that it was not freed
    std::free(memory);
    out.erase(it);
  }
  bool holds(const void* begin, std::size_t size) const {
    const auto* const first = static_cast<const std::byte*>(begin);
    const auto after = out.upper_bound(const_cast<std::byte*>(first));
    if (after == out.begin()) return false;
    const auto& [block, length] = *std::prev(after);
    return first + size <= block + length;
  }

  std::map<std::byte*, std::size_t> out;
  int allocations = 0;

 private:
  std::size_t left_;
};

std::shared_ptr<const augment::Plan> plan_of(const Reader& reader, bool mixed = false) {
  std::vector<OpSpec> chain;
  for (const auto& declared : op_declarations())
    if (mixed && declared.name == "mixup")
      chain.push_back({declared.name, declared.name, true, Params(declared.params)});
  return std::make_shared<augment::Plan>(chain, Source{reader.info().size, 1}, OutputOptions{},
                                         Resample::once, 10);
}

LoaderOptions options_with(std::shared_ptr<SlotMemory> memory, int workers) {
  LoaderOptions options;
  options.workers = workers;
  options.batch = 8;
  options.prefetch = 3;
  options.held = 2;
  options.memory = std::move(memory);
  return options;
}

class SlotMemoryTest : public ::testing::TestWithParam<int> {};

TEST_P(SlotMemoryTest, HoldsAllOfABatchUntilTheLastIsGivenBack) {
  const auto lent = std::make_shared<Lent>();
  const auto reader = std::make_shared<Numbered>(50);
  const auto plan = plan_of(*reader, /*mixed=*/true);
  Batch last;
  {
    Loader loader(reader, plan, options_with(lent, GetParam()));
    Loader ordinary(reader, plan, options_with(nullptr, GetParam()));
    EXPECT_EQ(loader.slots(), GetParam() > 0 ? 5u : 3u) << "prefetch, or one, and what is held";
    EXPECT_EQ(lent->out.size(), loader.slots());
    EXPECT_EQ(loader.slot_bytes(), ordinary.slot_bytes());
    while (Batch batch = loader.next()) {
      const Batch same = ordinary.next();
      const auto count = static_cast<std::size_t>(batch.count());
      const std::size_t rows = count * static_cast<std::size_t>(batch.classes()) * sizeof(float);
      EXPECT_TRUE(lent->holds(batch.data(), batch.bytes() + kTailSlack));
      EXPECT_TRUE(lent->holds(batch.labels(), count * sizeof(std::int64_t)));
      EXPECT_TRUE(lent->holds(batch.probabilities(), rows));
      EXPECT_EQ(std::memcmp(batch.data(), same.data(), batch.bytes()), 0);
      EXPECT_EQ(std::memcmp(batch.labels(), same.labels(), count * sizeof(std::int64_t)), 0);
      EXPECT_EQ(std::memcmp(batch.probabilities(), same.probabilities(), rows), 0);
      last = std::move(batch);
    }
  }
  EXPECT_EQ(lent->out.size(), static_cast<std::size_t>(lent->allocations))
      << "a device may still copy the last batch";
  last.release();
  EXPECT_EQ(lent->out.size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Workers, SlotMemoryTest, ::testing::Values(0, 2));

/// Loaders that follow each other take the same blocks; a larger one takes more.
TEST_P(SlotMemoryTest, KeptMemoryIsAllocatedOnce) {
  const auto lent = std::make_shared<Lent>();
  const auto reader = std::make_shared<Numbered>(50);
  const auto plan = plan_of(*reader);
  {
    const auto kept = std::make_shared<KeptMemory>(lent);
    const auto ordinary = std::make_shared<KeptMemory>(nullptr);
    int blocks = 0;
    for (int epoch = 0; epoch < 3; ++epoch) {
      Loader loader(reader, plan, options_with(kept, GetParam()));
      Loader other(reader, plan, options_with(ordinary, GetParam()));
      while (const Batch batch = loader.next()) {
        const Batch same = other.next();
        EXPECT_TRUE(lent->holds(batch.data(), batch.bytes()));
        EXPECT_EQ(std::memcmp(batch.data(), same.data(), batch.bytes()), 0);
      }
      blocks = static_cast<int>(loader.slots());
      EXPECT_EQ(lent->allocations, blocks);
    }
    LoaderOptions larger = options_with(kept, GetParam());
    larger.batch = 16;
    EXPECT_TRUE(Loader(reader, plan, larger).next());
    EXPECT_EQ(lent->allocations, 2 * blocks);
    EXPECT_EQ(static_cast<int>(lent->out.size()), 2 * blocks);
  }
  EXPECT_EQ(lent->out.size(), 0u);
}

TEST(SlotMemory, WhatIsThereGoesBackWhereItDoesNotSuffice) {
  const auto reader = std::make_shared<Numbered>(50);
  const auto plan = plan_of(*reader);
  const auto all = std::make_shared<Lent>();
  const std::size_t bytes = Loader(reader, plan, options_with(all, 1)).slot_bytes();
  const auto lent = std::make_shared<Lent>(bytes - 1);
  EXPECT_THROW(Loader(reader, plan, options_with(lent, 1)), RunError);
  EXPECT_EQ(lent->allocations, 4);
  EXPECT_EQ(lent->out.size(), 0u);
}

}  // namespace
}  // namespace millrace::pipeline
