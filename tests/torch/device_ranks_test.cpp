// Several ranks with a device each. A rank computes a step before the others have arrived at it;
// with train.cuda_graphs=step all of them replay a step, or none; the run's numbers have the same
// bits. Devices and graphs are the CPU's stand-ins, the sums are real.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "millrace/error.h"
#include "tests/torch/fake_device.h"
#include "tests/torch/ranks.h"

namespace millrace::train {
namespace {

using test::DeviceCalls;
using test::FakeGraph;
using test::FakeStreams;
using test::Outcome;
using test::set;
using test::set_inflight;
using test::TrainingRun;
using torch::Tensor;

constexpr int kWorld = 3;
constexpr std::int64_t kBatch = 8;  // 2, 3 and 3 samples

/// Returns eight steps per epoch, the last of them with 2 samples, of which the first rank has
/// none.
TrainingRun ranks_run() {
  TrainingRun run;
  run.strategy.sample.size = {28, 28};
  set(run.strategy, "train.momentum", 0.9);
  run.samples = 7 * kBatch + 2;
  run.training.epochs = 2;
  run.training.batch = kBatch;
  run.training.schedule = {.name = "cosine", .lr = 0.02, .warmup = 0.5, .milestones = {}};
  return run;
}

TrainingRun with_graphs(TrainingRun run) {
  run.strategy.graph_samples = run.training.batch;
  set(run.strategy, "train.cuda_graphs", "step");
  return run;
}

struct Ranks {
  std::vector<Outcome> outcomes;
  std::vector<DeviceCalls> calls = std::vector<DeviceCalls>(kWorld);
};

/// Trains ranks on a stand-in device each. `adapt` may change a rank's run.
Ranks train_on_devices(const TrainingRun& run, FakeGraph::Host host = FakeGraph::Host::left_out,
                       const std::function<void(TrainingRun&)>& adapt = nullptr) {
  Ranks ranks;
  const auto make = [&](const StrategyOptions& options) {
    // Known only once the strategy, which the graph belongs to, is made.
    auto strategy = std::make_shared<Ddp*>(nullptr);
    DeviceCalls& calls = ranks.calls[static_cast<std::size_t>(options.rank.rank)];
    std::unique_ptr<FakeGraph> graph;
    if (options.graph_samples > 0)
      graph = std::make_unique<FakeGraph>(
          calls, [] { return std::vector<Tensor>{}; },
          [strategy] { return (*strategy)->device_state(); }, host);
    auto made =
        std::make_unique<Ddp>(options, std::make_unique<FakeStreams>(calls), std::move(graph));
    *strategy = made.get();
    return made;
  };
  ranks.outcomes = test::train_ranks(
      run, kWorld,
      [&](TrainingRun& own, Ddp&) {
        if (adapt) adapt(own);
      },
      make);
  return ranks;
}

/// Expects the same bits with graphs and without on all ranks, and `replays` on each of them.
void expect_graphs_change_nothing(const TrainingRun& run, int replays,
                                  FakeGraph::Host host = FakeGraph::Host::left_out,
                                  const std::function<void(TrainingRun&)>& adapt = nullptr) {
  const Ranks eager = train_on_devices(run, host, adapt);
  const Ranks graphs = train_on_devices(with_graphs(run), host, adapt);
  const Outcome& first = eager.outcomes.front();
  ASSERT_GT(first.losses.size(), 1u);
  ASSERT_NE(first.losses.front(), first.losses.back());
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(eager.calls[rank].replays, 0);
    EXPECT_EQ(graphs.calls[rank].captures, 2) << "one for each input";
    EXPECT_EQ(graphs.calls[rank].replays, replays);
    for (const Outcome* outcome : {&eager.outcomes[rank], &graphs.outcomes[rank]}) {
      EXPECT_EQ(outcome->losses, first.losses);
      EXPECT_EQ(outcome->hash, first.hash);
    }
    EXPECT_EQ(graphs.outcomes[rank].images, eager.outcomes[rank].images);
    EXPECT_EQ(graphs.outcomes[rank].train_losses, eager.outcomes[rank].train_losses);
    // The stand-in's capture counts the answers of a batch twice where it runs the host's code.
    if (host == FakeGraph::Host::left_out) {
      EXPECT_EQ(graphs.outcomes[rank].train_top1s, eager.outcomes[rank].train_top1s);
    }
  }
}

TEST(GraphedRanks, DevicesHaveTheBitsOfTheCpu) {
  const std::vector<Outcome> host = test::train_ranks(ranks_run(), kWorld);
  const Ranks devices = train_on_devices(ranks_run());
  for (std::size_t rank = 0; rank < kWorld; ++rank)
    EXPECT_EQ(devices.outcomes[rank].hash, host[rank].hash);
}

TEST(GraphedRanks, HaveTheSameBits) { expect_graphs_change_nothing(ranks_run(), 2 * 7 - 3); }

TEST(GraphedRanks, HaveTheSameBitsByTheAsyncClock) {
  TrainingRun run = ranks_run();
  set_inflight(run.strategy, 3);
  run.held = 3;
  expect_graphs_change_nothing(run, 2 * 7 - 3);
}

/// The code of a step, its sums over the ranks included, runs once more in a capture.
TEST(GraphedRanks, ACaptureLeavesNothingBehind) {
  TrainingRun run = ranks_run();
  set(run.strategy, "train.optimizer", "adamw");
  set(run.strategy, "train.momentum", 0);
  set(run.strategy, "train.clip", 0.5);
  set(run.strategy, "train.ema", 0.9);
  set(run.strategy, "train.amp", "f16");
  run.training.epochs = 1;
  run.training.schedule.lr = 0.001;
  // The first average is an eager step's.
  expect_graphs_change_nothing(run, 7 - 3 - 1, FakeGraph::Host::runs);
}

TEST(GraphedRanks, HaveTheSameBitsWithBatchNormOverAllRanks) {
  TrainingRun run = ranks_run();
  set(run.strategy, "model.name", "vgg_cifar");
  set(run.strategy, "model.dropout", 0);  // ranks in one process draw from one generator
  set(run.strategy, "train.sync_batchnorm", true);
  run.strategy.sample.channels = 3;
  run.strategy.sample.size = {32, 32};
  run.training.epochs = 1;
  run.training.batch = kWorld;
  run.samples = 5 * kWorld;
  run.training.schedule = {};
  expect_graphs_change_nothing(run, 5 - 3, FakeGraph::Host::runs);
}

/// Counts the batches that a rank's device was sent.
class CountedStreams final : public FakeStreams {
 public:
  CountedStreams(DeviceCalls& calls, std::counting_semaphore<>& sent)
      : FakeStreams(calls), sent_(sent) {}
  Tensor copy(const Tensor& host) override {
    sent_.release();
    return FakeStreams::copy(host);
  }

 private:
  std::counting_semaphore<>& sent_;
};

/// Calls `first` before it reads the second rank's first sample of a batch.
class ReadsLate final : public test::FormulaReader {
 public:
  ReadsLate(std::uint64_t samples, std::function<void()> first)
      : FormulaReader(samples, 10), first_(std::move(first)) {}
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    if (index % kBatch == 2) first_();
    return FormulaReader::read(index, scratch);
  }

 private:
  std::function<void()> first_;
};

Loader loader_of(std::shared_ptr<const Reader> reader, LoaderOptions options) {
  options.workers = 0;
  options.shuffle.kind = Shuffle::Kind::none;
  return Loader(
      std::move(reader),
      std::make_shared<test::FormulaTransform>(SampleSpec{{28, 28}, 1, DType::f32, Layout::chw}),
      options);
}

TEST(DeviceRanks, ComputeBeforeTheOthersHaveArrived) {
  std::counting_semaphore<> sent(0);
  const auto wait = [&sent] {
    EXPECT_TRUE(sent.try_acquire_for(std::chrono::seconds(20))) << "the first rank waits as well";
  };
  TrainingRun run = ranks_run();
  run.samples = 5 * kBatch;
  run.training.epochs = 1;
  std::vector<DeviceCalls> calls(kWorld);
  const std::vector<Outcome> outcomes = test::train_ranks(
      run, kWorld,
      [&](TrainingRun& own, Ddp&) {
        if (own.strategy.rank.rank != 1) return;
        own.make_loader = [&wait, samples = own.samples](const LoaderOptions& options) {
          return loader_of(std::make_shared<ReadsLate>(samples, wait), options);
        };
      },
      [&](const StrategyOptions& options) {
        const auto rank = static_cast<std::size_t>(options.rank.rank);
        std::unique_ptr<DeviceStreams> streams;
        if (rank == 0)
          streams = std::make_unique<CountedStreams>(calls[rank], sent);
        else
          streams = std::make_unique<FakeStreams>(calls[rank]);
        return std::make_unique<Ddp>(options, std::move(streams));
      });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.losses, outcomes.front().losses);
}

/// Fails to read one sample, which makes one rank's part of one batch smaller.
class LacksOne final : public test::FormulaReader {
 public:
  LacksOne(std::uint64_t samples, std::uint64_t lost) : FormulaReader(samples, 10), lost_(lost) {}
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    if (index == lost_) throw DataError("lost");
    return FormulaReader::read(index, scratch);
  }

 private:
  std::uint64_t lost_;
};

TEST(GraphedRanks, NoneReplaysAStepForWhichOneCannot) {
  TrainingRun run = ranks_run();
  // The last rank's in the sixth batch of each epoch, which all of them replay otherwise.
  const std::uint64_t lost = 5 * kBatch + 7;
  const auto lose = [lost](TrainingRun& own) {
    own.make_loader = [samples = own.samples, lost](LoaderOptions options) {
      options.on_error = OnError::skip;
      return loader_of(std::make_shared<LacksOne>(samples, lost), options);
    };
  };
  expect_graphs_change_nothing(run, 2 * 6 - 3, FakeGraph::Host::left_out, lose);
}

}  // namespace
}  // namespace millrace::train
