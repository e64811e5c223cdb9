// train.cuda_graphs, as far as it can be tested without CUDA: which steps are captured and
// replayed, and that the run's numbers have the same bits. The graph is the CPU's stand-in.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>

#include "millrace/error.h"
#include "models/safetensors.h"
#include "strategies/torch/single.h"
#include "tests/torch/fake_device.h"
#include "tests/torch/temp_folder.h"
#include "tests/torch/training_run.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;

using test::DeviceCalls;
using test::FakeGraph;
using test::FakeStreams;
using test::Outcome;
using test::set;
using test::set_inflight;
using test::TempFolder;
using test::TrainingRun;
using torch::Tensor;

/// Returns whether the optimizer's step belongs to the graph.
bool has_whole_step(const StrategyOptions& options) {
  return options.recipe.text("train.cuda_graphs") == "step";
}

/// A strategy on the stand-in device.
struct Device {
  explicit Device(const StrategyOptions& options,
                  FakeGraph::Host host = FakeGraph::Host::left_out) {
    std::unique_ptr<FakeGraph> graph;
    if (options.graph_samples > 0)
      graph = std::make_unique<FakeGraph>(
          calls,
          [this, whole = has_whole_step(options)] {  // otherwise gradients outlive the graph
            return whole ? std::vector<Tensor>{} : single->model().parameters();
          },
          [this] { return single->device_state(); }, host);
    single.emplace(options, std::make_unique<FakeStreams>(calls), std::move(graph));
    test::fill_by_name(single->model());
  }
  DeviceCalls calls;
  std::optional<Single> single;
};

/// Returns ten steps per epoch, the last of them with 3 samples.
TrainingRun lenet_run() {
  TrainingRun run;
  run.strategy.sample.size = {28, 28};
  set(run.strategy, "train.momentum", 0.9);
  run.samples = 9 * 8 + 3;
  run.training.epochs = 3;
  run.training.batch = 8;
  run.training.schedule = {.name = "cosine", .lr = 0.02, .warmup = 0.5, .milestones = {}};
  return run;
}

TrainingRun graphed(TrainingRun run, bool step = false) {
  run.strategy.graph_samples = run.training.batch;
  set(run.strategy, "train.cuda_graphs", step ? "step" : "on");
  return run;
}

Outcome trained(const TrainingRun& run, DeviceCalls* calls = nullptr) {
  Device device(run.strategy);
  const Outcome outcome = test::train(*device.single, run);
  if (calls != nullptr) *calls = device.calls;
  return outcome;
}

void expect_same(const Outcome& outcome, const Outcome& expected) {
  EXPECT_EQ(outcome.losses, expected.losses);
  EXPECT_EQ(outcome.images, expected.images);
  EXPECT_EQ(outcome.train_losses, expected.train_losses);
  EXPECT_EQ(outcome.train_top1s, expected.train_top1s);
  EXPECT_EQ(outcome.hash, expected.hash);
  EXPECT_EQ(outcome.result.evaluation.value().loss_sum,
            expected.result.evaluation.value().loss_sum);
}

/// Expects the same bits without graphs and with either kind, and as many replays as there are full
/// batches after the warm-up.
void expect_same_bits(const TrainingRun& run, int replays) {
  const Outcome expected = trained(run);
  ASSERT_GT(expected.losses.size(), 1u);
  ASSERT_NE(expected.losses.front(), expected.losses.back());
  for (const bool step : {false, true}) {
    SCOPED_TRACE(step ? "step" : "on");
    DeviceCalls calls;
    expect_same(trained(graphed(run, step), &calls), expected);
    EXPECT_EQ(calls.captures, step ? 2 : 1) << "with the optimizer, a graph for each input";
    // The first average is a copy, which no graph repeats: that step is an eager one.
    EXPECT_EQ(calls.replays,
              step && run.strategy.recipe.number("train.ema") > 0 ? replays - 1 : replays);
    EXPECT_EQ(calls.asides, kGraphWarmUps + calls.captures);
  }
}

TEST(GraphedTraining, HasTheSameBits) { expect_same_bits(lenet_run(), 3 * 9 - 3); }

TEST(GraphedTraining, NamesTheStepsThatSetSomethingUp) {
  using enum measure::SetUp;
  std::vector<measure::SetUp> eager(30, none);
  eager[0] = first;
  eager[9] = shape;  // 3 samples
  EXPECT_EQ(trained(lenet_run()).set_ups, eager);
  std::vector<measure::SetUp> with_graph = eager;
  with_graph[1] = with_graph[2] = warm_up;  // the first step is the first warm-up as well
  with_graph[3] = capture;
  EXPECT_EQ(trained(graphed(lenet_run())).set_ups, with_graph);
  with_graph[4] = capture;  // for the second input
  EXPECT_EQ(trained(graphed(lenet_run(), /*step=*/true)).set_ups, with_graph);
  TrainingRun accumulated = lenet_run();
  accumulated.training.accumulate = 4;
  std::vector<measure::SetUp> windows(30, none);
  windows[0] = first;
  windows[1] = windows[3] = windows[9] = shape;  // adds gradients; updates; 3 samples
  EXPECT_EQ(trained(accumulated).set_ups, windows);
}

/// The stand-in has no times of its own, but marks are placed and read in order, and reused.
TEST(GraphedTraining, HasNoPartsWithinAGraph) {
  const DeviceTime eager = trained(lenet_run()).device;
  EXPECT_EQ(eager.parts_steps, 30u - 2);
  EXPECT_EQ(eager.graph_steps, 0u);
  EXPECT_GT(eager.parts.forward, 0);
  EXPECT_GT(eager.parts.backward, 0);
  EXPECT_GT(eager.parts.step, 0);
  EXPECT_EQ(eager.parts.graph, 0);
  for (const bool step : {false, true}) {
    const DeviceTime graph = trained(graphed(lenet_run(), step)).device;
    EXPECT_EQ(graph.parts_steps, 2u) << "of 3 samples";
    EXPECT_EQ(graph.graph_steps, 27u - (step ? 5 : 4)) << "without warm-up and captures";
    EXPECT_GT(graph.parts.graph, 0);
  }
  TrainingRun without = lenet_run();
  set(without.strategy, "train.device_parts", false);
  EXPECT_EQ(trained(without).device.parts_steps, 0u);
}

TEST(GraphedTraining, HasTheSameBitsByTheAsyncClock) {
  TrainingRun run = lenet_run();
  set_inflight(run.strategy, 3);
  run.held = 3;
  expect_same_bits(run, 3 * 9 - 3);
}

TEST(GraphedTraining, HasTheSameBitsWithAllThatActsOnGradients) {
  TrainingRun run = lenet_run();
  set(run.strategy, "train.optimizer", "adamw");
  set(run.strategy, "train.momentum", 0);
  set(run.strategy, "train.weight_decay", 0.05);
  set(run.strategy, "train.clip", 0.5);
  set(run.strategy, "train.ema", 0.9);  // evaluated each epoch: weights are swapped and restored
  set(run.strategy, "train.label_smoothing", 0.1);
  run.training.schedule.lr = 0.001;
  expect_same_bits(run, 3 * 9 - 3);
}

TEST(GraphedTraining, HasTheSameBitsInMixedPrecision) {
  TrainingRun run = lenet_run();
  run.training.epochs = 1;
  run.training.schedule = {.lr = 0.001, .milestones = {}};
  for (const char* amp : {"bf16", "f16"}) {
    SCOPED_TRACE(amp);
    set(run.strategy, "train.amp", amp);
    expect_same_bits(run, 9 - 3);
  }
}

float scale_in(const fs::path& folder) {
  const auto file = safetensors::File::read(folder / "training.safetensors");
  float scale = 0;
  for (const safetensors::Tensor& tensor : file.tensors())
    if (tensor.name == "scaler/scale") std::memcpy(&scale, tensor.bytes.data(), sizeof scale);
  return scale;
}

void set_scale(const fs::path& folder, float scale) {
  const fs::path path = folder / "training.safetensors";
  const auto file = safetensors::File::read(path);
  std::vector<safetensors::Tensor> tensors = file.tensors();
  for (safetensors::Tensor& tensor : tensors)
    if (tensor.name == "scaler/scale") tensor.bytes = std::as_bytes(std::span(&scale, 1));
  safetensors::write(path, tensors, file.metadata());
}

/// Steps whose gradients are not finite are skipped, in the warm-up and after it, and the scale
/// that the graph reads shrinks with each.
TEST(GraphedTraining, HasTheSameBitsWhileTheScaleOfF16Changes) {
  TrainingRun run = lenet_run();
  run.training.epochs = 2;
  set(run.strategy, "train.amp", "f16");
  run.training.schedule = {.lr = 0.01, .milestones = {}};
  std::optional<Outcome> eager;
  for (const int kind : {0, 1, 2}) {
    run.strategy.graph_samples = kind > 0 ? run.training.batch : 0;
    set(run.strategy, "train.cuda_graphs", kind == 2 ? "step" : "on");
    const TempFolder folder;
    fs::create_directory(folder / "step");
    Device device(run.strategy);
    device.single->save(folder / "step");
    set_scale(folder / "step", 0x1p26f);
    device.single->restore(folder / "step");
    const Outcome outcome = test::train(*device.single, run);
    device.single->save(folder / "step");
    EXPECT_LT(scale_in(folder / "step"), 0x1p22f)
        << "more steps are left out than there are warm-ups";
    EXPECT_GT(scale_in(folder / "step"), 0x1p6f) << "and not all";
    if (eager) expect_same(outcome, *eager);
    eager = outcome;
  }
}

std::string bytes_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// A capture runs the host's code once more than there are steps, which must leave no trace.
TEST(GraphedTraining, CapturesChangeNoState) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    SCOPED_TRACE(optimizer);
    TrainingRun run = lenet_run();
    run.training.epochs = 2;
    set(run.strategy, "train.optimizer", optimizer);
    set(run.strategy, "train.amp", "f16");
    set(run.strategy, "train.ema", 0.9);
    set(run.strategy, "train.clip", 0.5);
    run.training.schedule.lr = 0.001;
    const TempFolder folder;
    const auto train_and_save = [&](const TrainingRun& one, const char* name) {
      Device device(one.strategy, FakeGraph::Host::runs);
      const Outcome outcome = test::train(*device.single, one);
      fs::create_directory(folder / name);
      device.single->save(folder / name);
      EXPECT_EQ(device.calls.captures, has_whole_step(one.strategy) ? 2 : 0);
      return outcome.losses;
    };
    EXPECT_EQ(train_and_save(graphed(run, /*step=*/true), "graphs"), train_and_save(run, "eager"));
    for (const char* file : {"model.safetensors", "ema.safetensors", "training.safetensors"}) {
      EXPECT_GT(fs::file_size(folder / "eager" / file), 100u);
      EXPECT_EQ(bytes_of(folder / "graphs" / file), bytes_of(folder / "eager" / file)) << file;
    }
  }
}

TEST(GraphedTraining, HasTheSameBitsWithDropoutAndBatchNorm) {
  TrainingRun run = lenet_run();
  set(run.strategy, "model.name", "vgg_cifar");
  run.strategy.sample.channels = 3;
  run.strategy.sample.size = {32, 32};
  run.training.epochs = 2;
  run.training.batch = 4;
  run.samples = 4 * 4 + 2;
  run.training.schedule = {};
  expect_same_bits(run, 2 * 4 - 3);
}

TEST(GraphedTraining, HasTheSameBitsWithOurOwnOps) {
  TrainingRun run = lenet_run();
  run.training.epochs = 1;
  set(run.strategy, "model.ops", "native");
  expect_same_bits(run, 9 - 3);
}

/// Writes levels that depend on the sample, for output.normalize=device.
class LevelTransform final : public Transform {
 public:
  explicit LevelTransform(const SampleSpec& spec) : spec_(spec) {}
  std::unique_ptr<Scratch> make_scratch() const override { return std::make_unique<Scratch>(); }
  const SampleSpec& output() const override { return spec_; }
  void run(const SampleKey& key, PixelSource&, std::byte* out, Scratch&) const override {
    for (std::uint32_t i = 0; i < spec_.elements(); ++i)
      out[i] = std::byte((i * 31 + key.sample * 57 + i * i % 97) & 0xff);
  }

 private:
  SampleSpec spec_;
};

TEST(GraphedTraining, HasTheSameBitsFromLevels) {
  TrainingRun run = lenet_run();
  run.training.epochs = 1;
  run.strategy.sample.dtype = DType::u8;
  set(run.strategy, "output.normalize", "device");
  set(run.strategy, "output.mean", std::vector<double>{0.1307});
  set(run.strategy, "output.std", std::vector<double>{0.3081});
  run.make_loader = [samples = run.samples](LoaderOptions options) {
    options.workers = 0;
    options.shuffle.kind = Shuffle::Kind::none;
    return Loader(std::make_shared<test::FormulaReader>(samples, 10),
                  std::make_shared<LevelTransform>(SampleSpec{{28, 28}, 1, DType::u8, Layout::chw}),
                  options);
  };
  expect_same_bits(run, 9 - 3);
}

/// Batches that share an optimizer step add to gradients, which a graph cannot.
TEST(GraphedTraining, BatchesOfALargerWindowRunEagerly) {
  TrainingRun run = lenet_run();
  run.training.accumulate = 2;
  DeviceCalls calls;
  expect_same(trained(graphed(run), &calls), trained(run));
  expect_same(trained(graphed(run, /*step=*/true), &calls), trained(run));
  EXPECT_EQ(calls.captures + calls.replays + calls.asides, 0);
}

/// Resumes at `step`, in the middle of an epoch; a new process warms up and captures again.
void expect_resumes(std::uint64_t step, bool with_optimizer = false) {
  TrainingRun run = graphed(lenet_run(), with_optimizer);
  run.training.checkpoint_every = step;
  const TempFolder folder;
  fs::create_directory(folder / "step");
  std::optional<Position> at;
  Outcome whole;
  {
    Device device(run.strategy);
    run.checkpoint = [&](const Position& position) {
      if (at) return;
      device.single->save(folder / "step");
      at = position;
    };
    whole = test::train(*device.single, run);
  }
  ASSERT_EQ(at.value().steps, step);
  run.checkpoint = nullptr;
  run.training.from = *at;
  for (const std::int64_t samples : {run.training.batch, std::int64_t{0}}) {
    run.strategy.graph_samples = samples;
    Device device(run.strategy);
    device.single->restore(folder / "step");
    const Outcome resumed = test::train(*device.single, run);
    const std::vector<double> rest(whole.losses.begin() + static_cast<std::ptrdiff_t>(step),
                                   whole.losses.end());
    EXPECT_EQ(resumed.losses, rest) << samples;
    EXPECT_EQ(resumed.hash, whole.hash) << samples;
    EXPECT_EQ(resumed.train_losses, whole.train_losses) << samples;
    EXPECT_EQ(resumed.train_top1s, whole.train_top1s) << samples;
    EXPECT_EQ(device.calls.captures, samples == 0 ? 0 : with_optimizer ? 2 : 1);
  }
}

TEST(GraphedTraining, ResumesInTheWarmUp) { expect_resumes(2); }
TEST(GraphedTraining, ResumesAfterTheCapture) { expect_resumes(7); }
TEST(GraphedTraining, ResumesWholeStepsAfterTheirCaptures) {
  expect_resumes(7, /*with_optimizer=*/true);
}

/// Weights are read into the memory that the graph uses.
TEST(GraphedTraining, GoesBackToACheckpointWithTheGraphItHas) {
  for (const bool step : {false, true}) {
    TrainingRun run = graphed(lenet_run(), step);
    run.training.epochs = 1;
    const TempFolder folder;
    fs::create_directory(folder / "step");
    Device device(run.strategy);
    device.single->save(folder / "step");
    const Outcome first = test::train(*device.single, run);
    device.single->restore(folder / "step");
    expect_same(test::train(*device.single, run), first);
    EXPECT_EQ(device.calls.captures, step ? 2 : 1);
    EXPECT_EQ(device.calls.replays, 9 - 3 + 9);
  }
}

TEST(GraphedTraining, ALossThatIsNotANumberNamesItsStep) {
  TrainingRun run = lenet_run();
  run.training.schedule = {.lr = 1e4, .milestones = {}};
  const auto end_of = [](const TrainingRun& diverging) -> std::string {
    try {
      trained(diverging);
      return "it has not diverged";
    } catch (const RunError& error) {
      return error.what();
    }
  };
  const std::string expected = end_of(run);
  ASSERT_NE(expected.find("at step"), std::string::npos) << expected;
  EXPECT_EQ(end_of(graphed(run)), expected);
  EXPECT_EQ(end_of(graphed(run, /*step=*/true)), expected);
}

}  // namespace
}  // namespace millrace::train
