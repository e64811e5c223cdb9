// Training on a CUDA device follows the CPU's. Skipped without a device.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "millrace/error.h"
#include "strategies/torch/data_parallel.h"
#include "strategies/torch/single.h"
#include "strategies/trainer/cuda_module.h"
#include "tests/torch/needs_device.h"
#include "tests/torch/ranks.h"
#include "tests/torch/training_run.h"

namespace millrace::train {
namespace {

using test::Outcome;
using test::set;
using test::set_inflight;
using test::TrainingRun;

TEST(CudaModulePath, LeadsFromThisProgramToTheModule) {
  const std::filesystem::path module =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "lib/libmillrace_cuda.so";
  if (!std::filesystem::exists(module)) GTEST_SKIP() << "this build has no CUDA module";
  ASSERT_TRUE(std::filesystem::exists(cuda_module_path())) << cuda_module_path();
  EXPECT_TRUE(std::filesystem::equivalent(cuda_module_path(), module)) << cuda_module_path();
  EXPECT_EQ(why_not_loaded(cuda_module_path(), "the linker's reason").find("nvcc"),
            std::string::npos);
}

/// Each test is a process of its own (ctest), because the module must come before torch's first
/// call.
class CudaTraining : public ::testing::Test {
 protected:
  void SetUp() override { test::load_device_or_skip("TRAINING ON CUDA IS NOT TESTED HERE"); }
};

TrainingRun lenet_run(const std::string& device, int inflight = 0) {
  TrainingRun run;
  run.strategy.sample.size = {28, 28};
  set(run.strategy, "train.momentum", 0.9);
  run.strategy.device = device;
  set_inflight(run.strategy, inflight);
  set(run.strategy, "train.tf32", "off");
  run.training.epochs = 4;
  run.training.batch = 64;
  run.training.schedule.lr = 0.02;
  run.samples = 289;
  run.held = 2;
  return run;
}

template <class Strategy>
Outcome train(TrainingRun run) {
  Strategy strategy(run.strategy);
  test::fill_by_name(strategy.model());
  run.memory = strategy.slot_memory();
  const Outcome outcome = test::train(strategy, run);
  if (run.strategy.device != "cpu") {
    EXPECT_GT(strategy.peak_device_bytes(), 61'706u * 3 * 4) << "weights, gradients, momenta";
    EXPECT_EQ(strategy.bus_id().size(), std::string("0000:1b:00.0").size());
  }
  return outcome;
}

void expect_follows(const Outcome& run, const Outcome& cpu) {
  ASSERT_EQ(run.losses.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i)
    EXPECT_NEAR(run.losses[i], cpu.losses[i], 1e-4 * cpu.losses[i]) << "step " << i + 1;
}

TEST_F(CudaTraining, FollowsTheCpusByEitherClock) {
  const Outcome cpu = train<Single>(lenet_run("cpu"));
  const Outcome sync = train<Single>(lenet_run("cuda"));
  const Outcome async = train<Single>(lenet_run("cuda", 2));
  expect_follows(sync, cpu);
  expect_follows(async, cpu);
}

/// Both runs execute the same kernels in the same order, so only cuDNN's choice of sums may differ,
/// which is fixed here. graphed_steps_test.cpp has the counterpart with the stand-in device.
TEST_F(CudaTraining, GraphsFollowTheEagerRun) {
  at::globalContext().setDeterministicCuDNN(true);
  const auto compare = [](TrainingRun run) {
    const Outcome eager = train<Single>(run);
    run.strategy.graph_samples = run.training.batch;
    for (const bool step : {false, true}) {
      set(run.strategy, "train.cuda_graphs", step ? "step" : "on");
      const Outcome graphed = train<Single>(run);
      ASSERT_EQ(graphed.losses.size(), eager.losses.size());
      for (std::size_t i = 0; i < eager.losses.size(); ++i)
        EXPECT_NEAR(graphed.losses[i], eager.losses[i], 1e-5 * eager.losses[i])
            << "step " << i + 1 << (step ? ", with the optimizer's" : "");
      EXPECT_EQ(graphed.images, eager.images);
    }
  };
  TrainingRun run = lenet_run("cuda");  // five steps per epoch, the last of them with 33 samples
  run.training.schedule.name = "cosine";
  compare(run);
  set_inflight(run.strategy, 2);
  compare(run);
  set(run.strategy, "model.ops", "native");
  compare(run);
  run = lenet_run("cuda");
  set(run.strategy, "train.amp", "f16");
  run.training.schedule.lr = 0.001;
  compare(run);
  set(run.strategy, "train.optimizer", "adamw");
  set(run.strategy, "train.momentum", 0);
  set(run.strategy, "train.clip", 0.5);
  set(run.strategy, "train.ema", 0.9);
  compare(run);
}

/// One rank, whose sums over all ranks are captured with the step.
TEST_F(CudaTraining, GraphsOfARankFollowItsEagerRun) {
  at::globalContext().setDeterministicCuDNN(true);
  const auto compare = [](TrainingRun run) {
    set(run.strategy, "train.strategy", "ddp");
    set(run.strategy, "train.cuda_graphs", "step");
    Outcome outcomes[2];
    for (const bool graphs : {false, true}) {
      run.strategy.graph_samples = graphs ? run.training.batch : 0;
      outcomes[graphs ? 1 : 0] = test::train_ranks(run, 1, [](TrainingRun& own, Ddp& ddp) {
                                   own.memory = ddp.slot_memory();
                                 }).front();
    }
    const auto& [eager, graphed] = outcomes;
    ASSERT_EQ(graphed.losses.size(), eager.losses.size());
    for (std::size_t i = 0; i < eager.losses.size(); ++i)
      EXPECT_NEAR(graphed.losses[i], eager.losses[i], 1e-5 * eager.losses[i]) << "step " << i + 1;
    EXPECT_EQ(graphed.images, eager.images);
    EXPECT_GT(graphed.device.graph_steps, 0u);
  };
  TrainingRun run = lenet_run("cuda");
  run.training.schedule.name = "cosine";
  compare(run);
  set_inflight(run.strategy, 2);
  compare(run);
  set(run.strategy, "model.name", "vgg_cifar");
  run.strategy.sample.channels = 3;
  run.strategy.sample.size = {32, 32};
  set(run.strategy, "train.sync_batchnorm", true);
  set(run.strategy, "train.amp", "f16");
  set(run.strategy, "train.ema", 0.9);
  set(run.strategy, "train.clip", 0.5);
  run.training.schedule.lr = 0.001;
  run.training.batch = 16;
  run.samples = 16 * 3;
  compare(run);
}

/// Each replay draws new numbers, those that the eager step would have drawn.
TEST_F(CudaTraining, GraphsDrawWhatEagerStepsDo) {
  at::globalContext().setDeterministicCuDNN(true);
  TrainingRun run = lenet_run("cuda");
  set(run.strategy, "model.name", "vgg_cifar");  // has dropout and batch normalisation
  run.strategy.sample.channels = 3;
  run.strategy.sample.size = {32, 32};
  run.training.batch = 16;
  run.training.schedule.lr = 0.001;
  run.samples = 16 * 3;
  const Outcome eager = train<Single>(run);
  run.strategy.graph_samples = 16;
  const Outcome graphed = train<Single>(run);
  ASSERT_EQ(graphed.losses.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_NEAR(graphed.losses[i], eager.losses[i], 1e-4 * eager.losses[i]) << "step " << i + 1;
}

TEST_F(CudaTraining, ReplicasFollowTheCpu) {
  TrainingRun run = lenet_run("cuda");
  set(run.strategy, "train.strategy", "data_parallel");
  set(run.strategy, "train.replicas", 2);
  try {
    CudaLibrary::load("train.device=cuda", 0, 2);
  } catch (const DeviceError& error) {
    GTEST_SKIP() << "REPLICAS ON CUDA ARE NOT TESTED HERE: " << error.what();
  }
  expect_follows(train<DataParallel>(run), train<Single>(lenet_run("cpu")));
}

TEST_F(CudaTraining, ABatchThatDoesNotFitIsToldWithOneThatWould) {
  TrainingRun run = lenet_run("cuda");
  set(run.strategy, "model.name", "vgg19");
  run.strategy.sample.channels = 3;
  run.strategy.sample.size = {224, 224};
  run.training.batch = 4096;  // some 400 GB of activations
  run.samples = 4096;
  try {
    train<Single>(run);
    FAIL() << "a device of more than 400 GB?";
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("a training step of 4096 samples"), std::string::npos);
    EXPECT_NE(error.hint().find("would fit"), std::string::npos) << error.hint();
  }
}

}  // namespace
}  // namespace millrace::train
