// Tests that the loader announces samples to readers that look ahead.
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "augment/plan/plan.h"
#include "millrace/loader.h"
#include "pipeline/loader/shuffled_order.h"
#include "pipeline/loader/slice.h"
#include "tests/pipeline/numbered.h"

namespace millrace::pipeline {
namespace {

/// Records what is announced, and counts reads before their announcement.
class Announced final : public Numbered {
 public:
  Announced(std::uint64_t count, std::uint64_t lookahead)
      : Numbered(count), lookahead_(lookahead), open_(count) {}
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    {
      const std::lock_guard lock(mutex_);
      if (--open_[index] < 0) ++unannounced_;
    }
    return Numbered::read(index, scratch);
  }
  std::uint64_t lookahead() const override { return lookahead_; }
  void expect(std::uint64_t index) const override {
    const std::lock_guard lock(mutex_);
    log_.push_back(index);
    ++open_[index];
  }
  std::vector<std::uint64_t> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  int unannounced() const {
    const std::lock_guard lock(mutex_);
    return unannounced_;
  }

 private:
  const std::uint64_t lookahead_;
  mutable std::mutex mutex_;
  mutable std::vector<std::uint64_t> log_;
  mutable std::vector<int> open_;  ///< announcements of a sample less its reads
  mutable int unannounced_ = 0;
};

std::shared_ptr<const augment::Plan> plan_of(const Reader& reader) {
  return std::make_shared<augment::Plan>(std::vector<OpSpec>{}, Source{reader.info().size, 1},
                                         OutputOptions{DType::u8, Layout::chw, {0}, {1}},
                                         Resample::once);
}

/// Returns the samples that a rank reads, in the sampler's order.
std::vector<std::uint64_t> order_of(const LoaderOptions& options, std::uint64_t count) {
  const auto batch = static_cast<std::uint64_t>(options.batch);
  const std::uint64_t batches = (count + batch - 1) / batch;
  std::vector<std::uint64_t> order;
  for (std::uint64_t i = options.first_batch; i < options.epochs * batches; ++i) {
    const ShuffledOrder sampler(count, options.shuffle, options.seed,
                                static_cast<std::uint32_t>(i / batches));
    const std::uint64_t first = i % batches * batch;
    const Slice slice = rank_slice(static_cast<std::int64_t>(std::min(batch, count - first)),
                                   options.rank, options.world, 1);
    for (std::int64_t at = slice.first; at < slice.first + slice.count; ++at)
      order.push_back(sampler(first + static_cast<std::uint64_t>(at)));
  }
  return order;
}

TEST(Lookahead, EachSampleIsAnnouncedOnceInItsOrderBeforeItIsRead) {
  constexpr std::uint64_t kCount = 61;
  for (const int workers : {0, 2}) {
    for (const int rank : {0, 1}) {
      for (const std::uint64_t ahead : {1, 20, 1000}) {
        const auto reader = std::make_shared<Announced>(kCount, ahead);
        LoaderOptions options = two_epochs(workers, 8);
        options.rank = rank;
        options.world = 2;
        options.first_batch = 3;
        Loader loader(reader, plan_of(*reader), options);
        std::size_t read = 0;
        while (const Batch batch = loader.next()) read += static_cast<std::size_t>(batch.count());
        EXPECT_EQ(reader->log(), order_of(options, kCount))
            << workers << " " << rank << " " << ahead;
        EXPECT_EQ(reader->log().size(), read);
        EXPECT_EQ(reader->unannounced(), 0) << workers << " " << rank << " " << ahead;
      }
    }
  }
}

TEST(Lookahead, IsAsLongAsTheReaderAsksFor) {
  for (const int workers : {0, 2}) {
    const auto reader = std::make_shared<Announced>(400, 20);
    LoaderOptions options = two_epochs(workers, 8);
    options.prefetch = 1;
    Loader loader(reader, plan_of(*reader), options);
    static_cast<void>(loader.next());
    EXPECT_GE(reader->log().size(), 8u + 20) << workers;
    EXPECT_LT(reader->log().size(), 400u) << "not the whole epoch at once";
    const auto none = std::make_shared<Announced>(400, 0);
    static_cast<void>(Loader(none, plan_of(*none), options).next());
    EXPECT_TRUE(none->log().empty());
  }
}

}  // namespace
}  // namespace millrace::pipeline
