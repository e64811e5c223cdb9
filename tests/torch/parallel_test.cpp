// Replicas, ranks and accumulation follow the single run (contract Faithful training): losses,
// counts and stops, short last batches included.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <limits>
#include <thread>

#include "millrace/error.h"
#include "strategies/torch/data_parallel.h"
#include "strategies/torch/single.h"
#include "tests/torch/ranks.h"
#include "tests/torch/temp_folder.h"

namespace millrace::train {
namespace {

using test::Outcome;
using test::set;
using test::TrainingRun;

TrainingRun lenet_run(std::uint64_t samples, std::int64_t batch = 64) {
  TrainingRun run;
  run.strategy.sample.size = {28, 28};
  set(run.strategy, "train.momentum", 0.9);
  run.training.epochs = 4;
  run.training.batch = batch;
  run.training.eval_every = 0;  // only at the end
  run.training.schedule.lr = 0.02;
  run.samples = samples;
  return run;
}

/// Batch norm over few values turns rounding errors into different steps: a small rate limits the
/// comparison to the sums.
TrainingRun resnet_run(int side, std::int64_t batch, std::uint64_t samples, std::uint64_t epochs) {
  TrainingRun run = lenet_run(samples, batch);
  set(run.strategy, "model.name", "resnet18");
  set(run.strategy, "model.variant", "cifar");
  run.strategy.sample.channels = 3;
  run.strategy.sample.size = {side, side};
  set(run.strategy, "train.sync_batchnorm", true);
  run.training.schedule.lr = 2e-6;
  run.training.epochs = epochs;
  return run;
}

Outcome train_single(TrainingRun run) {
  set(run.strategy, "train.sync_batchnorm", false);
  Single single(run.strategy);
  test::fill_by_name(single.model());
  return test::train(single, run);
}

Outcome train_replicas(TrainingRun run, int replicas, bool separate = false,
                       std::unique_ptr<DeviceGroup> sum = nullptr) {
  set(run.strategy, "train.strategy", "data_parallel");
  set(run.strategy, "train.replicas", replicas);
  DataParallel parallel(run.strategy, separate, std::move(sum));
  test::fill_by_name(parallel.model());
  return test::train(parallel, run);
}

void expect_follows(const Outcome& run, const Outcome& single, double tolerance,
                    const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_EQ(run.losses.size(), single.losses.size());
  EXPECT_EQ(run.images, single.images);
  for (std::size_t i = 0; i < run.losses.size(); ++i)
    EXPECT_NEAR(run.losses[i], single.losses[i], tolerance * single.losses[i]) << "step " << i + 1;
  EXPECT_NEAR(run.result.train_loss, single.result.train_loss,
              tolerance * single.result.train_loss);
  EXPECT_EQ(run.result.train_top1, single.result.train_top1);
  EXPECT_EQ(run.result.images, single.result.images);
  const Evaluation& own = run.result.evaluation.value();
  const Evaluation& expected = single.result.evaluation.value();
  EXPECT_EQ(own.images, expected.images);
  EXPECT_EQ(own.top5, expected.top5);
  EXPECT_EQ(own.confusion, expected.confusion);
  EXPECT_NEAR(own.loss_sum, expected.loss_sum, tolerance * expected.loss_sum);
}

void expect_ranks_follow(const TrainingRun& run, int world, const Outcome& single,
                         double tolerance) {
  const std::vector<Outcome> ranks = test::train_ranks(run, world);
  expect_follows(ranks[0], single, tolerance, "ddp, " + std::to_string(world));
  std::uint64_t images = 0;
  for (const Outcome& rank : ranks) {
    EXPECT_EQ(rank.hash, ranks[0].hash);
    EXPECT_EQ(rank.losses, ranks[0].losses);
    EXPECT_EQ(rank.result.evaluation->confusion, ranks[0].result.evaluation->confusion);
    EXPECT_EQ(rank.result.evaluation->loss_sum, ranks[0].result.evaluation->loss_sum);
    images += rank.result.rank_images;
  }
  EXPECT_EQ(images, run.samples * run.training.epochs);
}

void expect_replicas_follow(const TrainingRun& run, int replicas, const Outcome& single,
                            double tolerance) {
  expect_follows(train_replicas(run, replicas), single, tolerance,
                 "data_parallel, " + std::to_string(replicas));
}

constexpr double kLeNetTolerance = 1e-5;      ///< the contract requires 1e-4
constexpr double kBatchNormTolerance = 5e-5;  ///< rounding, multiplied by the norms

/// Number of samples in the last of 5 batches per epoch.
class Tail : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Tail, ReplicasAndRanksFollowTheSingleRun) {
  const TrainingRun run = lenet_run(4 * 64 + GetParam());
  const Outcome single = train_single(run);
  ASSERT_EQ(single.losses.size(), 20u);
  EXPECT_EQ(train_replicas(run, 1).losses, single.losses) << "one replica, nothing to add";
  for (const int count : {2, 3}) {
    expect_replicas_follow(run, count, single, kLeNetTolerance);
    expect_ranks_follow(run, count, single, kLeNetTolerance);
  }
}

TEST_P(Tail, AccumulationFollowsTheLargerBatch) {
  const Outcome large = train_single(lenet_run(4 * 64 + GetParam()));
  TrainingRun run = lenet_run(4 * 64 + GetParam(), 32);
  run.training.accumulate = 2;
  const auto expect_windows = [&](const Outcome& small, const char* what) {
    SCOPED_TRACE(what);
    std::size_t step = 0;
    for (std::size_t i = 0; i < large.losses.size(); ++i) {
      double sum = 0;
      for (std::int64_t images = 0; images < large.images[i]; ++step) {
        ASSERT_LT(step, small.losses.size());
        sum += small.losses[step] * static_cast<double>(small.images[step]);
        images += small.images[step];
      }
      const double loss = sum / static_cast<double>(large.images[i]);
      EXPECT_NEAR(loss, large.losses[i], kLeNetTolerance * large.losses[i]) << "step " << i + 1;
    }
    EXPECT_EQ(step, small.losses.size());
    EXPECT_EQ(small.result.evaluation->confusion, large.result.evaluation->confusion);
  };
  expect_windows(train_single(run), "single");
  expect_windows(train_replicas(run, 2), "data_parallel, 2");
  expect_windows(test::train_ranks(run, 3)[0], "ddp, 3");
}

INSTANTIATE_TEST_SUITE_P(Of, Tail, testing::Values(1, 33), testing::PrintToStringParamName());

TEST(Parallel, TheTrainingAccuracyOfAnUnchangedModelIsItsEvaluations) {
  TrainingRun run = lenet_run(4 * 64 + 1);
  run.training.epochs = 2;
  run.training.schedule.lr = 1e-30;
  const auto expect_equal = [](const Outcome& outcome, const char* what) {
    SCOPED_TRACE(what);
    const double top1 = top1_of(outcome.result.evaluation.value());
    EXPECT_GT(top1, 0.0);
    EXPECT_LT(top1, 1.0);
    EXPECT_EQ(outcome.train_top1s, (std::vector<double>{top1, top1}));
    EXPECT_EQ(outcome.result.train_top1, top1);
  };
  expect_equal(train_single(run), "single");
  expect_equal(train_replicas(run, 3), "data_parallel, 3");
  for (const Outcome& rank : test::train_ranks(run, 3)) expect_equal(rank, "ddp, 3");
}

TEST(Parallel, EverythingAroundTheGradientsIsTheSame) {
  TrainingRun run = lenet_run(4 * 64 + 33);
  set(run.strategy, "train.optimizer", "adamw");
  set(run.strategy, "train.momentum", 0);
  set(run.strategy, "train.weight_decay", 0.05);
  set(run.strategy, "train.label_smoothing", 0.1);
  set(run.strategy, "train.clip", 0.5);
  set(run.strategy, "train.ema", 0.9);
  run.training.accumulate = 2;  // 5 batches per epoch: the last window is one short batch
  run.training.schedule = {.name = "cosine", .lr = 0.001, .warmup = 1, .milestones = {}};
  const Outcome single = train_single(run);
  expect_replicas_follow(run, 3, single, kLeNetTolerance);
  expect_ranks_follow(run, 3, single, kLeNetTolerance);
}

TEST(Parallel, BatchNormSeesTheWholeBatchWithATailOfOne) {
  const TrainingRun run = resnet_run(16, 8, 4 * 8 + 1, 4);
  const Outcome single = train_single(run);
  ASSERT_EQ(single.losses.size(), 20u);
  expect_replicas_follow(run, 2, single, kBatchNormTolerance);
  expect_ranks_follow(run, 3, single, kBatchNormTolerance);
}

TEST(Parallel, BatchNormSeesTheWholeBatchWithATailOf33) {
  const TrainingRun run = resnet_run(8, 34, 34 + 33, 10);
  const Outcome single = train_single(run);
  ASSERT_EQ(single.losses.size(), 20u);
  expect_replicas_follow(run, 3, single, kBatchNormTolerance);
  expect_ranks_follow(run, 2, single, kBatchNormTolerance);
}

TEST(Parallel, TheSameRunHasTheSameBits) {
  const TrainingRun run = lenet_run(4 * 64 + 33);
  const Outcome replicas = train_replicas(run, 3);
  const Outcome ranks = test::train_ranks(run, 3)[0];
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(train_replicas(run, 3).hash, replicas.hash);
    EXPECT_EQ(test::train_ranks(run, 3)[0].hash, ranks.hash);
  }
}

/// Replicas as on separate devices: weights are sent out, gradients come back.
TEST(Parallel, ReplicasWithParametersOfTheirOwnGetTheSameBits) {
  TrainingRun run = lenet_run(4 * 64 + 33);
  EXPECT_EQ(train_replicas(run, 3, /*separate=*/true).hash, train_replicas(run, 3).hash);
  run.training.accumulate = 2;
  const Outcome separate = train_replicas(run, 2, /*separate=*/true);
  const Outcome shared = train_replicas(run, 2);
  EXPECT_EQ(separate.losses, shared.losses);
  EXPECT_EQ(separate.hash, shared.hash);
}

TEST(Parallel, DropoutDrawsTheSameWhicheverReplicaComesFirst) {
  TrainingRun run = lenet_run(12, 6);
  set(run.strategy, "model.name", "vgg_cifar");  // has dropout of 0.5
  run.strategy.sample.channels = 3;
  run.strategy.sample.size = {32, 32};
  run.training.epochs = 1;
  const Outcome replicas = train_replicas(run, 2);
  EXPECT_EQ(train_replicas(run, 2).hash, replicas.hash);
  set(run.strategy, "model.dropout", 0);
  EXPECT_NE(train_replicas(run, 2).hash, replicas.hash);
}

/// One rank is asked to stop after `asked` steps; all stop together.
class Stop : public testing::TestWithParam<std::tuple<int, std::uint64_t>> {};

TEST_P(Stop, OfOneRankIsAgreedUponByAll) {
  const auto [victim, accumulate] = GetParam();
  TrainingRun run = lenet_run(40 * 6, 6);
  run.training.epochs = 2;
  run.training.accumulate = accumulate;
  run.training.checkpoint_every = 4;
  std::vector<std::atomic<bool>> stops(3);
  const std::vector<Outcome> ranks = test::train_ranks(run, 3, [&](TrainingRun& own, Ddp&) {
    const int rank = own.strategy.rank.rank;
    std::atomic<bool>& stop = stops[static_cast<std::size_t>(rank)];
    own.stop = &stop;
    own.checkpoint = [&stop, rank, victim](const Position& position) {
      if (rank == victim && position.steps == 8) stop = true;
    };
  });
  for (const Outcome& rank : ranks) {
    EXPECT_TRUE(rank.result.interrupted);
    // All ranks learn of it in the next step, and complete the optimizer step that it belongs to.
    EXPECT_EQ(rank.result.steps, accumulate == 1 ? 9u : 10u);
    EXPECT_EQ(rank.hash, ranks[0].hash);
    EXPECT_FALSE(rank.result.evaluation.has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(Asked, Stop,
                         testing::Combine(testing::Values(0, 2), testing::Values(1, 2)));

TEST(Ddp, NoCheckpointBeforeEveryRankHasComeToIt) {
  const test::TempFolder folder;
  TrainingRun run = lenet_run(32, 32);  // a model without buffers to share
  run.training.epochs = 1;
  std::atomic<int> arrived = 0;
  int arrived_before = 0;
  test::train_ranks(run, 3, [&](TrainingRun& own, Ddp& ddp) {
    const int rank = own.strategy.rank.rank;
    own.checkpoint = [&, rank](const Position&) {
      if (rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(50 * rank));
      ++arrived;  // where the program writes the rank's rows
      ddp.save(folder / "");
      if (rank == 0) arrived_before = arrived;
    };
  });
  EXPECT_EQ(arrived_before, 3);
}

/// Replaces NCCL on the CPU: adds in the order of the replicas, like the strategy without devices.
class FakeGroup final : public DeviceGroup {
 public:
  explicit FakeGroup(int& calls) : calls_(calls) {}
  void sum(std::vector<at::Tensor>& vectors) override {
    ++calls_;
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      ASSERT_TRUE(vectors[i].is_contiguous() && vectors[i].dim() == 1);
      ASSERT_EQ(vectors[i].numel(), vectors[0].numel());
      if (i == 0) continue;
      vectors[0].add_(vectors[i]);
      vectors[i].fill_(std::numeric_limits<float>::quiet_NaN());  // undefined after the sum
    }
  }
  void broadcast(std::vector<at::Tensor>& vectors) override {
    ++broadcasts;
    for (std::size_t i = 1; i < vectors.size(); ++i) {
      ASSERT_TRUE(vectors[i].is_contiguous() && vectors[i].sizes() == vectors[0].sizes());
      vectors[i].copy_(vectors[0]);
    }
  }
  int broadcasts = 0;

 private:
  int& calls_;
};

TEST(Ddp, RanksWithOtherOpsAreRefused) {
  test::prepare_environment();
  const int port = test::free_port();
  std::vector<std::string> said(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      StrategyOptions options = lenet_run(64).strategy;
      set(options, "train.strategy", "ddp");
      set(options, "model.ops", rank == 1 ? "native" : "torch");
      options.rank = test::thread_rank(rank, 2, port);
      set(options, "train.timeout", 60);
      try {
        const Ddp ddp(options);
      } catch (const UsageError& error) {
        said[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(said[0].starts_with("model.ops=auto is torch on rank 0, native on rank 1"))
      << said[0];
  EXPECT_TRUE(said[1].starts_with("model.ops=auto is native on rank 1, torch on rank 0"))
      << said[1];
}

TEST(DataParallel, GradientsSummedByDevicesHaveTheSameBits) {
  TrainingRun run = lenet_run(3 * 16 + 1, 16);  // the last batch leaves replicas without a sample
  run.training.epochs = 2;
  for (const std::uint64_t accumulate : {1, 2}) {
    run.training.accumulate = accumulate;
    int calls = 0;
    const Outcome expected = train_replicas(run, 3, /*separate=*/true);
    const Outcome outcome =
        train_replicas(run, 3, /*separate=*/true, std::make_unique<FakeGroup>(calls));
    EXPECT_EQ(outcome.losses, expected.losses);
    EXPECT_EQ(outcome.hash, expected.hash);
    EXPECT_EQ(calls, 2 * 4) << "LeNet's gradients fit into one sum";
  }
}

/// Returns planes, pixels, a vector and a number, `value` at first and then growing.
std::vector<torch::Tensor> gradients_of(float value) {
  const auto count = [&](at::IntArrayRef sizes) {
    const std::int64_t all = c10::multiply_integers(sizes);
    return torch::arange(all, torch::kFloat).add_(value).reshape(sizes).contiguous();
  };
  return {count({2, 3, 2, 2}), count({2, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast),
          count({5}), count({})};
}

TEST(GradientSum, KeepsLayoutsAndTakesAsMuchAtATimeAsItMay) {
  const std::int64_t image = 24 * 4, vector = 5 * 4, number = 4;
  const std::vector<std::pair<std::int64_t, int>> cases{
      {1, 4},
      {image, 3},  // the vector and the number share a bucket
      {image + image - 1, 2},
      {image + image, 2},
      {image + image + vector, 2},
      {image + image + vector + number, 1},
      {kBucketBytes, 1}};
  for (const auto& [bytes, sums] : cases) {
    std::vector<std::vector<torch::Tensor>> gradients{gradients_of(0), gradients_of(100),
                                                      gradients_of(1000)};
    const std::vector<torch::Tensor> first = gradients[0];
    int calls = 0;
    FakeGroup group(calls);
    sum_gradients(gradients, group, bytes);
    EXPECT_EQ(calls, sums) << bytes;
    for (std::size_t i = 0; i < first.size(); ++i) {
      const torch::Tensor expected =
          gradients_of(0)[i] + gradients_of(100)[i] + gradients_of(1000)[i];
      EXPECT_TRUE(torch::equal(first[i], expected)) << bytes << ", " << i;
      EXPECT_EQ(first[i].strides(), gradients_of(0)[i].strides());
    }
  }
}

TEST(WeightsOfReplicas, AreSentInAsFewPiecesAsTheyMay) {
  for (const auto& [bytes, pieces] :
       std::vector<std::pair<std::int64_t, int>>{{1, 4}, {24 * 4, 3}, {kBucketBytes, 1}}) {
    const std::vector<std::vector<torch::Tensor>> weights{gradients_of(7), gradients_of(100),
                                                          gradients_of(1000)};
    int sums = 0;
    FakeGroup group(sums);
    send_weights(weights, group, bytes);
    EXPECT_EQ(group.broadcasts, pieces) << bytes;
    for (const std::vector<torch::Tensor>& own : weights)
      for (std::size_t i = 0; i < own.size(); ++i) {
        EXPECT_TRUE(torch::equal(own[i], gradients_of(7)[i])) << bytes << ", " << i;
        EXPECT_EQ(own[i].strides(), gradients_of(7)[i].strides());
      }
  }
}

TEST(DataParallel, RefusesWhatItCannotDo) {
  StrategyOptions options;
  options.sample.size = {28, 28};
  set(options, "train.replicas", 2);
  options.device = "cuda:1";
  EXPECT_THROW(DataParallel{options}, UsageError) << "replicas take devices from the first one on";
}

/// A checkpoint gets its name once every rank has its records on disk.
TEST(Parallel, TheFirstRankWaitsForTheRecordsOfAllOthers) {
  std::atomic<int> announced{0};
  TrainingRun run = lenet_run(64, 32);
  run.training.epochs = 1;
  test::train_ranks(run, 3, [&](TrainingRun& own, Ddp& ddp) {
    const int rank = own.strategy.rank.rank;
    if (rank == 0) {
      ddp.wait_for_records(5);
      EXPECT_EQ(announced, 2);
      ddp.wait_for_records(4);  // an earlier one
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(40 * rank));
    ddp.announce_records(2);
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    ++announced;
    ddp.announce_records(rank == 1 ? 7 : 5);
  });
}

TEST(Parallel, ARankThatDoesNotWriteItsRecordsIsNamed) {
  test::prepare_environment();
  const int port = test::free_port();
  std::string said;
  std::atomic<bool> over{false};
  const auto rank = [&](int number) {
    const Peers peers(test::thread_rank(number, 2, port), nullptr, std::chrono::seconds(3));
    if (number == 1) {
      peers.announce(4);
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    try {
      peers.wait_for(5);
    } catch (const RunError& error) {
      said = error.what();
    }
    over = true;
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  EXPECT_EQ(said, "rank 1 has not written its records up to step 5 within 3 s");
}

/// The store's own error is a page of addresses.
TEST(Parallel, ARankThatHasLostTheFirstOneSaysSoInALine) {
  test::prepare_environment();
  const int port = test::free_port();
  std::string said;
  std::latch connected(2);
  const auto rank = [&](int number) {
    Peers peers(test::thread_rank(number, 2, port), nullptr, std::chrono::seconds(20));
    connected.arrive_and_wait();
    if (number == 0) return;
    try {
      peers.gather("here");  // rank 0 never answers: it leaves, and the store with it
    } catch (const RunError& error) {
      said = error.what();
    }
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  const std::string begin = "rank 1 has lost rank 0 at 127.0.0.1:" + std::to_string(port) + ": ";
  EXPECT_TRUE(said.starts_with(begin)) << said;
  EXPECT_EQ(said.find('\n'), std::string::npos) << said;
}

}  // namespace
}  // namespace millrace::train
