// The streams and events of c10 that a GPU is used through, on a device without one. Each case runs
// with every choice of streams that run ahead of the others, so that it passes only if all waits
// are there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strategies/torch/device.h"
#include "strategies/torch/single.h"
#include "strategies/torch/step_graphs.h"
#include "strategies/trainer/device_accounting.h"
#include "tests/torch/formula.h"
#include "tests/torch/private_device.h"
#include "tests/torch/steps_in_flight.h"

namespace millrace::train {
namespace {

using test::PrivateDevice;
using torch::Tensor;

constexpr int kCopies = 6;

constexpr unsigned kWorkAhead = 1, kCopiesAhead = 2, kSideAhead = 4;

std::string ahead(const testing::TestParamInfo<unsigned>& of) {
  std::string names;
  if (of.param & kWorkAhead) names += "Work";
  if (of.param & kCopiesAhead) names += "Copies";
  if (of.param & kSideAhead) names += "Side";
  return names.empty() ? "NoStreamAhead" : names + "Ahead";
}

/// Pixels of batch `value`.
Tensor pixels(int value) { return torch::full({64}, value, torch::kByte); }

class C10StreamsTest : public testing::TestWithParam<unsigned> {
 protected:
  C10StreamsTest() {
    device_.reset(GetParam());
    streams_ = make_device_streams(PrivateDevice::device());
    for (int value = 0; value < kCopies; ++value) hosts_.push_back(pixels(value));
  }
  ~C10StreamsTest() override {
    if (!HasFailure()) return;
    for (const std::string& line : device_.log()) std::cout << line << '\n';
  }
  Tensor empty() const { return torch::empty_like(hosts_[0], PrivateDevice::device()); }
  /// Lets work read the memory.
  void read(const Tensor& there) { seen_.push_back(streams_->to_host(there)); }
  void copy_and_read(const Tensor& host) {
    const Tensor there = streams_->copy(host);
    streams_->join();
    read(there);
  }
  /// Waits for all work, which must have read the pixels of one batch after the other.
  void expect_batches_in_order() {
    streams_->fence()->wait();
    ASSERT_EQ(seen_.size(), static_cast<std::size_t>(kCopies));
    for (int value = 0; value < kCopies; ++value)
      EXPECT_TRUE(seen_[value].equal(pixels(value)))
          << "batch " << value << " was read as "
          << static_cast<int>(*seen_[value].data_ptr<std::uint8_t>());
  }

  PrivateDevice& device_ = PrivateDevice::get();
  std::unique_ptr<DeviceStreams> streams_;
  std::vector<Tensor> hosts_;  ///< pixels by batch
  std::vector<Tensor> seen_;   ///< what work has read
};
INSTANTIATE_TEST_SUITE_P(, C10StreamsTest, testing::Range(0u, 8u), ahead);

TEST_P(C10StreamsTest, ASlotMayChangeOnceTheMarkBehindItsCopyIsReached) {
  Tensor slot = pixels(0);
  for (int value = 0; value < kCopies; ++value) {
    slot.fill_(value);
    const Tensor there = streams_->copy(slot);
    const OwnedMark copied = streams_->join();
    read(there);
    copied->wait();
  }
  expect_batches_in_order();
}

TEST_P(C10StreamsTest, MemoryIsUsedAgainOnceWorkHasReadIt) {
  for (const Tensor& host : hosts_) copy_and_read(host);
  expect_batches_in_order();
  EXPECT_EQ(device_.count("1 << copy"), kCopies) << "beside work";
  const int allocated = device_.count("allocate");
  copy_and_read(hosts_[0]);
  EXPECT_EQ(device_.count("allocate"), allocated) << "nobody reads what was allocated";
}

TEST_P(C10StreamsTest, ACopyWaitsForTheWorkThatHasReadItsPlace) {
  empty().copy_(pixels(99), /*non_blocking=*/true);  // frees memory that work still writes
  Tensor there = empty();
  ASSERT_EQ(device_.count("reuse"), 1);
  OwnedMark done = streams_->fence();
  for (const Tensor& host : hosts_) {
    streams_->copy_into(there, host, *done);
    streams_->join();
    read(there);
    done = streams_->fence();
  }
  expect_batches_in_order();
  EXPECT_EQ(device_.count("1 << copy"), kCopies) << "beside work";
}

TEST_P(C10StreamsTest, TheSideStreamWaitsForWorkAndWorkForTheSideStream) {
  Tensor there = empty(), result = empty();
  for (const Tensor& host : hosts_) {
    there.copy_(host, /*non_blocking=*/true);
    streams_->on_side_stream([&] { result.copy_(there, /*non_blocking=*/true); });
    read(result);
  }
  expect_batches_in_order();
  EXPECT_EQ(device_.count("2 << copy"), kCopies);
  EXPECT_EQ(device_.count("3 <<"), 0) << "there is one side stream";
}

TEST_P(C10StreamsTest, TimesGoFromMarkToMark) {
  const auto ms_after = [](base::Clock::Ticks from, base::Clock::Ticks to) {
    return base::Clock::seconds(to - from) * 1e3;
  };
  const base::Clock::Ticks before = base::Clock::now();
  streams_->set_clock();
  const base::Clock::Ticks after = base::Clock::now();
  const auto first = streams_->mark();
  device_.spend(1e8);  // milliseconds in single precision then are 8 apart
  const auto second = streams_->mark();
  device_.spend(0.25);
  const auto third = streams_->mark();
  device_.spend(0.5);
  third->wait();
  const base::Clock::Ticks first_at = streams_->time_of(*first);
  EXPECT_GE(first_at, before);
  EXPECT_LE(first_at, after);
  const base::Clock::Ticks second_at = streams_->time_of(*second);
  EXPECT_NEAR(ms_after(first_at, second_at), 1e8, 1);
  base::Clock::Ticks last_at = streams_->time_of(*third);
  EXPECT_NEAR(ms_after(second_at, last_at), 0.25, 1e-4);
  streams_->mark_again(*first);
  first->wait();
  EXPECT_NEAR(ms_after(last_at, streams_->time_of(*first)), 0.5, 1e-4);
}

TEST_P(C10StreamsTest, ARingOfMarksIsLargeEnough) {
  /// Returns the milliseconds from each mark to the next.
  const auto distances = [&](int inflight, int room) {
    std::vector<long> all;
    double ms = 0;
    streams_->set_clock();
    try {
      std::optional<base::Clock::Ticks> last;
      const auto work = [&] { device_.spend(++ms); };
      for (const FinishedStep& step : test::mark_steps(*streams_, inflight, room, work))
        for (const base::Clock::Ticks at : {step.begin, step.end})
          all.push_back(
              std::lround(base::Clock::seconds(at - std::exchange(last, at).value_or(at)) * 1e3));
    } catch (const c10::Error&) {
      all.push_back(-1);  // a time was asked for of a mark that had been placed again
    }
    return all;
  };
  for (const int inflight : {0, 1, 2, 5}) {
    std::vector<long> expected;
    for (int step = 1; step <= test::kSteps - inflight; ++step) {
      expected.push_back(0);
      expected.push_back(step);
    }
    EXPECT_EQ(distances(inflight, inflight), expected);
    EXPECT_NE(distances(inflight, std::max(inflight - 2, -1)), expected)
        << "the device notices nothing";
  }
}

TEST_P(C10StreamsTest, ARingOfNumbersIsLargeEnough) {
  const auto numbers = [&](int inflight, int room) {
    const auto on = torch::TensorOptions(PrivateDevice::device());
    const Tensor there = torch::empty({}, on), seen = torch::empty({test::kSteps}, on);
    test::send_numbers(*streams_, inflight, room, there, [&](int step) {
      seen.narrow(0, step, 1).copy_(there, /*non_blocking=*/true);
    });
    const Tensor here = streams_->to_host(seen);
    streams_->fence()->wait();
    return here;
  };
  const Tensor expected = torch::arange(test::kSteps, torch::kFloat);
  for (const int inflight : {1, 2, 5})
    EXPECT_TRUE(numbers(inflight, inflight).equal(expected)) << inflight;
  const bool copied_at_once = (GetParam() & kWorkAhead) != 0;
  EXPECT_EQ(numbers(5, 5 - 3).equal(expected), copied_at_once) << "the device notices nothing";
}

TEST_P(C10StreamsTest, MarksAreUsedAgain) {
  for (const Tensor& host : hosts_) copy_and_read(host);
  expect_batches_in_order();
  EXPECT_EQ(device_.count("1 << record e1."), kCopies);
  EXPECT_EQ(device_.count("0 << record e1."), 1) << "the fence at the end";
}

/// Work recorded once, launched again and again.
class CapturedWork final : public DeviceGraph {
 public:
  std::vector<at::Tensor> capture(const Work& work) override {
    std::vector<at::Tensor> results;
    tasks_ = PrivateDevice::get().capture([&] { results = work(); });
    return results;
  }
  void replay() override { PrivateDevice::get().replay(tasks_); }
  std::unique_ptr<DeviceGraph> sibling() override { return std::make_unique<CapturedWork>(); }

 private:
  std::vector<PrivateDevice::Task> tasks_;
};

/// Batches of a loader that writes to their slots again as soon as they are given back.
class C10StreamsBatches : public C10StreamsTest {
 protected:
  static constexpr std::int64_t kSamples = 4;
  static constexpr std::uint64_t kBatches = 12;

  Loader loader() const {
    return test::formula_loader(form_.sample, kSamples * kBatches, kSamples);
  }
  void for_each_batch(const std::function<void(Batch)>& work) {
    Loader batches = loader();
    for (;;) {
      held_.keep_at_most(batches.slots() - 1);
      Batch batch = batches.next();
      if (!batch) break;
      work(std::move(batch));
    }
  }
  Samples copy(Batch batch) {
    const Samples there = samples_in(streams_->copy(block_of(batch)), batch, form_);
    hold(std::move(batch));
    return there;
  }
  /// Launches a step that reads the images. Returns what it has read.
  static Tensor copy_of(const Tensor& images) {
    Tensor result = torch::empty_like(images);
    return result.copy_(images, /*non_blocking=*/true);
  }
  /// Gives the batch back once the copies so far are done.
  void hold(Batch batch) {
    std::vector<OwnedMark> copied;
    copied.push_back(streams_->join());
    held_.hold(std::move(batch), std::move(copied));
  }
  /// Waits for all work, which must have read the images of every batch.
  void expect_every_image() {
    streams_->fence()->wait();
    ASSERT_EQ(seen_.size(), kBatches);
    Loader again = loader();
    for (const Tensor& seen : seen_) {
      const Batch batch = again.next();
      EXPECT_TRUE(seen.equal(images_of(batch, whole(batch), form_)));
    }
  }

  const InputForm form_{"lenet5", {.size = {2, 1}, .channels = 1}, true};
  InFlightBatches held_;
};
INSTANTIATE_TEST_SUITE_P(, C10StreamsBatches, testing::Range(0u, 8u), ahead);

TEST_P(C10StreamsBatches, ReturnToTheLoaderOnceTheyAreCopied) {
  for_each_batch([this](Batch batch) { read(copy(std::move(batch)).images); });
  expect_every_image();
}

TEST_P(C10StreamsBatches, AreReadByGraphsWhereTheyAreSentInTurn) {
  {  // frees memory that work still writes, for the first block
    const Batch batch = loader().next();
    const auto bytes = torch::full({block_of(batch).numel()}, 99, torch::kByte);
    torch::empty_like(bytes, PrivateDevice::device()).copy_(bytes, /*non_blocking=*/true);
  }
  measure::SpanClock spans(base::Clock::now());
  StepGraphs graphs(std::make_unique<CapturedWork>(), *streams_, PrivateDevice::device(), kSamples);
  int replays = 0;
  for_each_batch([&](Batch batch) {
    ASSERT_TRUE(graphs.takes(batch));
    ASSERT_GE(device_.count("reuse"), 1);
    const auto send = [&](Tensor& block, DeviceMark* done) {
      streams_->copy_into(block, block_of(batch), *done);
      Samples there = samples_in(block, batch, form_);
      hold(std::move(batch));
      return there;
    };
    const auto step = [](const Samples& there, auto*) { return copy_of(there.images); };
    read(graphs.run(send, spans, step));
    replays += graphs.last_set_up() == measure::SetUp::none;
  });
  EXPECT_EQ(replays, kBatches - kGraphWarmUps - 2);
  expect_every_image();
}

TEST_P(C10StreamsBatches, AreReadByAGraphThatHasThemCopiedOnceMore) {
  measure::SpanClock spans(base::Clock::now());
  StepGraphs graphs(std::make_unique<CapturedWork>(), *streams_, PrivateDevice::device(), kSamples,
                    /*parameters=*/{torch::ones({1})});
  int replays = 0;
  for_each_batch([&](Batch batch) {
    ASSERT_TRUE(graphs.takes(batch));
    const auto send = [&](Tensor& block, DeviceMark*) {
      const Tensor copied = streams_->copy(block_of(batch));
      Samples there = samples_in(block, batch, form_);
      hold(std::move(batch));
      block.copy_(copied, /*non_blocking=*/true);
      return there;
    };
    const auto step = [](const Samples& there, auto*) { return copy_of(there.images); };
    read(graphs.run(send, spans, step));
    replays += graphs.last_set_up() == measure::SetUp::none;
  });
  EXPECT_EQ(replays, kBatches - kGraphWarmUps - 1);
  expect_every_image();
}

}  // namespace
}  // namespace millrace::train
