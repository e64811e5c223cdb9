// Single strategy: its losses are PyTorch's (contract Faithful training), its sums exact, its
// messages clear.
#include "strategies/torch/single.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "millrace/error.h"
#include "models/weights.h"
#include "strategies/trainer/trainer.h"
#include "tests/torch/formula.h"
#include "tests/torch/golden.h"
#include "tests/torch/native_grid.h"
#include "tests/torch/options.h"
#include "tests/torch/temp_folder.h"

// Entry points of the library, as strategies/trainer/torch_library.cpp finds them.
extern "C" millrace::train::Strategy* millrace_make_strategy(
    const millrace::train::StrategyOptions* options);
extern "C" const char* millrace_torch_version();

namespace millrace::train {
namespace {

using test::formula;
using test::formula_loader;
using test::set;
using test::TempFolder;

nlohmann::json golden() { return test::read_golden("lenet_losses.json"); }

/// Sets the weights that the golden losses start from.
void fill_by_formula(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  auto parameters = model.named_parameters().pairs();
  std::sort(parameters.begin(), parameters.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::uint32_t salt = 0; salt < parameters.size(); ++salt) {
    torch::Tensor& parameter = parameters[salt].second;
    torch::Tensor values = torch::empty(parameter.sizes());
    float* const value = values.data_ptr<float>();
    for (std::uint32_t i = 0; i < parameter.numel(); ++i) value[i] = formula(i, salt, 0.25f);
    parameter.copy_(values);
  }
}

StrategyOptions options_of(const nlohmann::json& run) {
  StrategyOptions options;
  set(options, "model.name", run["model"].get<std::string>());
  options.sample.channels = run["channels"];
  options.sample.size = {run["side"], run["side"]};
  set(options, "train.momentum", run["momentum"].get<double>());
  set(options, "train.weight_decay", run["weight_decay"].get<double>());
  set(options, "train.nesterov", run["nesterov"].get<bool>());
  return options;
}

SampleSpec spec_of(const StrategyOptions& options) {
  return {options.sample.size, options.sample.channels};
}

StrategyOptions mnist_options() {
  StrategyOptions options;
  options.sample.size = {28, 28};
  set(options, "train.momentum", 0.9);
  return options;
}

/// Takes one optimizer step per batch.
void step(Single& single, Batch batch, measure::SpanClock& spans, double lr = 0.01) {
  const StepContext place{.window_samples = batch.global_count(), .lr = lr};
  single.step(std::move(batch), place, spans);
}

TEST(CorrectCounter, CountsRowsWhoseFirstLargestLogitIsTheLabel) {
  CorrectCounter counter(torch::kCPU);
  const torch::Tensor logits = torch::tensor(
      {{1.f, 3.f, 2.f}, {5.f, 5.f, 1.f}, {5.f, 5.f, 1.f}, {0.f, 0.f, 0.f}, {-3.f, -2.f, -1.f}});
  counter.add(logits, torch::tensor(std::vector<std::int64_t>{1, 0, 1, 2, 2}));
  EXPECT_EQ(counter.take(), 3u) << "rows 1, 2 and 5";
  EXPECT_EQ(counter.take(), 0u);
  counter.add(logits.t().contiguous().t(), torch::tensor(std::vector<std::int64_t>{1, 0, 0, 0, 2}));
  EXPECT_EQ(counter.take(), 5u) << "columns first in memory";
  counter.add(logits, torch::full({5, 3}, 1.f / 3));
  EXPECT_EQ(counter.take(), 0u) << "probabilities have no label";
}

TEST(CorrectCounter, AgreesWithArgmax) {
  torch::manual_seed(1);
  CorrectCounter counter(torch::kCPU);
  for (const std::int64_t classes : {2, 10, 1000}) {
    // Few distinct values, so that many rows have several largest ones.
    const torch::Tensor logits =
        torch::randint(0, 20, {500, classes}, torch::TensorOptions(torch::kFloat)).requires_grad_();
    const torch::Tensor labels = torch::randint(0, classes, {500}, torch::kLong);
    // Half of the labels are right.
    const torch::Tensor targets = torch::where(torch::arange(500) < 250, logits.argmax(1), labels);
    counter.add(logits, targets);
    EXPECT_EQ(counter.take(),
              static_cast<std::uint64_t>((logits.argmax(1) == targets).sum().item<std::int64_t>()))
        << classes;
  }
}

/// LibTorch's ops, or the native ones at a SIMD level.
struct GoldenOps {
  std::optional<base::Simd> level;

  std::string name() const {
    return level ? "native_" + std::string(base::name_of(*level)) : "torch";
  }
  friend void PrintTo(const GoldenOps& ops, std::ostream* out) { *out << ops.name(); }
};

/// Number of the golden run, and the ops.
class GoldenLosses : public ::testing::TestWithParam<std::tuple<int, GoldenOps>> {};

TEST_P(GoldenLosses, FollowPyTorchs) {
  const auto all = golden();
  const auto [index, ops] = GetParam();
  const std::optional<base::Simd> level = ops.level;
  const bool native = level.has_value();
  const test::KeptLevel kept;
  if (native && *level > base::simd_supported()) GTEST_SKIP() << "not on this processor";
  if (native) base::set_simd_level(*level);
  const auto run = all["cases"][static_cast<std::size_t>(index)];
  StrategyOptions options = options_of(run);
  set(options, "model.ops", native ? "native" : "torch");
  Single single(options);
  fill_by_formula(single.model());
  Loader loader = formula_loader(spec_of(options), all["samples"], all["batch"], all["epochs"]);
  measure::SpanClock spans(base::Clock::now());
  double weighted = 0;
  std::int64_t samples = 0;
  for (const double expected : run["losses"]) {
    Batch batch = loader.next();
    ASSERT_TRUE(batch);
    const std::int64_t count = batch.count();
    step(single, std::move(batch), spans, run["lr"]);
    const double loss = single.take_finished().at(0).loss.value();
    EXPECT_NEAR(loss, expected, (native ? 1e-5 : 1e-6) * expected);
    weighted += loss * static_cast<double>(count);
    samples += count;
  }
  EXPECT_FALSE(loader.next());
  EXPECT_DOUBLE_EQ(single.take_train_loss(), weighted / static_cast<double>(samples));
  EXPECT_TRUE(std::isnan(single.take_train_loss()));

  Loader once = formula_loader(spec_of(options), all["samples"], 50);
  const Evaluation evaluation = single.evaluate(once).value();
  EXPECT_EQ(evaluation.images, all["samples"]);
  EXPECT_EQ(evaluation.top5, run["evaluation"]["top5"]);
  const double loss_sum = run["evaluation"]["loss_sum"];
  EXPECT_NEAR(evaluation.loss_sum, loss_sum, 1e-5 * loss_sum);
  std::uint64_t top1 = 0;
  std::uint64_t cells = 0;
  for (std::size_t label = 0; label < evaluation.confusion.size(); ++label) {
    top1 += evaluation.confusion[label][label];
    EXPECT_EQ(evaluation.correct[label], evaluation.confusion[label][label]);
    std::uint64_t row = 0;
    for (const std::uint64_t cell : evaluation.confusion[label]) row += cell;
    EXPECT_EQ(evaluation.samples[label], row);
    cells += row;
  }
  EXPECT_EQ(top1, run["evaluation"]["top1"]);
  EXPECT_EQ(cells, all["samples"]);
}

std::string name_of_run(const ::testing::TestParamInfo<GoldenLosses::ParamType>& one) {
  const auto& [index, ops] = one.param;
  return "run" + std::to_string(index) + "_" + ops.name();
}

INSTANTIATE_TEST_SUITE_P(Runs, GoldenLosses,
                         ::testing::Combine(::testing::Range(0, 6),
                                            ::testing::Values(GoldenOps{},
                                                              GoldenOps{base::Simd::scalar},
                                                              GoldenOps{base::Simd::avx2},
                                                              GoldenOps{base::Simd::avx512})),
                         name_of_run);

TEST(Single, EntersTheSpansOfAStepAndStaysInTheLast) {
  Single single(mnist_options());
  Loader loader = formula_loader(spec_of(mnist_options()), 64, 64);
  measure::SpanClock spans(base::Clock::now());
  spans.enter(measure::Span::load);
  Batch batch = loader.next();
  const base::Clock::Ticks before = base::Clock::now();
  step(single, std::move(batch), spans);
  EXPECT_EQ(spans.current(), measure::Span::step);
  const measure::Span last = spans.enter(measure::Span::log);
  EXPECT_EQ(last, measure::Span::step);
  base::Clock::Ticks update = 0;
  for (std::size_t i = 0; i < measure::kSpanCount; ++i)
    if (measure::is_update(static_cast<measure::Span>(i))) update += spans.ticks()[i];
  EXPECT_LE(update, spans.since() - before);
  EXPECT_GT(update, (spans.since() - before) * 9 / 10);
  EXPECT_GT(spans.ticks()[static_cast<std::size_t>(measure::Span::forward)], 0);
  EXPECT_GT(spans.ticks()[static_cast<std::size_t>(measure::Span::backward)], 0);
}

TEST(Single, SameSeedSameParametersAnotherSeedOthers) {
  StrategyOptions options = mnist_options();
  set(options, "seed", 5);
  const std::string first = Single(options).parameters_hash();
  EXPECT_EQ(Single(options).parameters_hash(), first);
  set(options, "seed", 6);
  EXPECT_NE(Single(options).parameters_hash(), first);
}

TEST(Single, StartsFromSavedWeights) {
  const TempFolder folder;
  StrategyOptions options = mnist_options();
  Single single(options);
  Loader loader = formula_loader(spec_of(options), 64, 64);
  measure::SpanClock spans(base::Clock::now());
  step(single, loader.next(), spans);
  std::filesystem::create_directory(folder / "checkpoint");
  single.save(folder / "checkpoint");
  set(options, "seed", 99);
  set(options, "model.weights", (folder / "checkpoint/model.safetensors").string());
  EXPECT_EQ(Single(options).parameters_hash(), single.parameters_hash());
}

TEST(Single, EvaluationChangesNoParameterAndWorksWithFewClasses) {
  StrategyOptions options = mnist_options();
  options.classes = 3;
  Single single(options);
  const std::string before = single.parameters_hash();
  Loader loader = formula_loader(spec_of(options), 33, 16, 1, 3);
  const Evaluation evaluation = single.evaluate(loader).value();
  EXPECT_EQ(single.parameters_hash(), before);
  EXPECT_EQ(evaluation.images, 33u);
  EXPECT_EQ(evaluation.top5, 33u);
  EXPECT_EQ(evaluation.confusion.size(), 3u);
}

TEST(Single, EvaluationTakesNoMemoryForTheSquareOfManyClasses) {
  StrategyOptions options = mnist_options();
  options.classes = 40'000;  // confusions would be a matrix of 12.8 GB
  Single single(options);
  Loader loader = formula_loader(spec_of(options), 33, 16, 1, options.classes);
  const Evaluation evaluation = single.evaluate(loader).value();
  EXPECT_TRUE(evaluation.confusion.empty());
  EXPECT_EQ(std::accumulate(evaluation.samples.begin(), evaluation.samples.end(), 0u), 33u);
  EXPECT_EQ(evaluation.correct.size(), evaluation.samples.size());
  EXPECT_GE(top1_of(evaluation), 0);
}

TEST(Single, TellsWhatItIs) {
  Single single(mnist_options());
  EXPECT_EQ(single.parameter_count(), 61'706u);
  EXPECT_EQ(single.device(), "cpu (1 thread)");
  EXPECT_EQ(single.peak_device_bytes(), 0u);
  EXPECT_TRUE(single.take_finished().empty());
  EXPECT_EQ(std::string(millrace_torch_version()).substr(0, 2), "2.");
}

/// Returns the message and hint of the `E` with which the options are rejected.
template <class E>
std::string refusal(const StrategyOptions& options) {
  try {
    const std::unique_ptr<Strategy> strategy(millrace_make_strategy(&options));
    return "not refused";
  } catch (const E& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
}

TEST(Single, RefusesOptionsThatNoModelCanFollow) {
  StrategyOptions options = mnist_options();
  options.sample.dtype = DType::u8;
  EXPECT_EQ(refusal<UsageError>(options),
            "model.name=lenet5 takes f32, the batches are u8 | set output.dtype=f32; "
            "output.normalize=device sends u8 and makes f32 of it");
  options = mnist_options();
  options.sample.size = {8, 8};
  EXPECT_EQ(refusal<UsageError>(options).find("takes images of at least 12x12 pixels"), 18u);
  options = mnist_options();
  set(options, "train.momentum", 0);
  set(options, "train.nesterov", true);
  EXPECT_NE(refusal<UsageError>(options).find("train.nesterov=true needs a momentum"),
            std::string::npos);
  for (const char* device : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:999", ""}) {
    options = mnist_options();
    options.device = device;
    EXPECT_NE(refusal<UsageError>(options).find("unknown device"), std::string::npos) << device;
  }
}

TEST(Single, RefusesBatchesOfAnotherSize) {
  Single single(mnist_options());
  Loader loader = formula_loader({{32, 32}, 1, DType::f32, Layout::chw}, 4, 4);
  measure::SpanClock spans(base::Clock::now());
  try {
    step(single, loader.next(), spans);
    FAIL() << "took 32x32";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("was built for 1x28x28 f32 samples"),
              std::string::npos)
        << error.what();
  }
}

TEST(Single, LabelsBeyondTheClassesAreOneLine) {
  StrategyOptions options = mnist_options();
  options.classes = 3;
  Single single(options);
  Loader loader = formula_loader(spec_of(options), 8, 8);
  measure::SpanClock spans(base::Clock::now());
  try {
    step(single, loader.next(), spans);
    FAIL() << "took label 7 of 3 classes";
  } catch (const RunError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  }
}

TEST(Single, WithoutCudaItSaysWhatIsMissing) {
  StrategyOptions options = mnist_options();
  options.device = "cuda";
  const std::string what = refusal<DeviceError>(options);
  if (what == "not refused") GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(what.find("train.device=cuda: "), 0u) << what;
  EXPECT_NE(what.find("set train.device=cpu"), std::string::npos) << what;
}

}  // namespace
}  // namespace millrace::train
