// output.normalize=device: the numbers of the loader's own store, wherever they are computed.
#include <gtest/gtest.h>

#include "augment/plan/plan.h"
#include "strategies/torch/data_parallel.h"
#include "strategies/torch/device.h"
#include "strategies/torch/single.h"
#include "tests/torch/ranks.h"

namespace millrace::train {
namespace {

using test::Outcome;
using test::TrainingRun;

/// Samples of every level, distinguished by their number.
class Levels final : public Reader {
 public:
  Levels(std::uint64_t count, Size size, int channels) {
    info_.count = count;
    info_.size = size;
    info_.channels = channels;
    info_.classes.resize(10);
    const std::size_t elements = SampleSpec{size, channels}.elements();
    pixels_.resize(count * elements + kTailSlack);
    std::uint32_t state = 1;
    for (std::uint8_t& level : pixels_)
      level = static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24);
    elements_ = elements;
  }
  Sample read(std::uint64_t index, Buffer&) const override {
    return {{pixels_.data() + index * elements_, elements_},
            static_cast<std::int64_t>(index * 7 % 10)};
  }
  std::string name(std::uint64_t index) const override { return std::to_string(index); }

 private:
  std::vector<std::uint8_t> pixels_;
  std::size_t elements_;
};

/// ImageNet's values, and the usual ones for MNIST.
StrategyOptions options_of(int channels) {
  StrategyOptions options;
  options.model = channels == 3 ? "lenet5_cifar" : "lenet5";
  options.channels = channels;
  options.input = channels == 3 ? Size{32, 32} : Size{28, 28};
  options.mean =
      channels == 3 ? std::vector<double>{0.485, 0.456, 0.406} : std::vector<double>{0.1307};
  options.std =
      channels == 3 ? std::vector<double>{0.229, 0.224, 0.225} : std::vector<double>{0.3081};
  options.momentum = 0.9;
  return options;
}

StrategyOptions on_device(StrategyOptions options) {
  options.dtype = DType::u8;
  options.normalize = true;
  return options;
}

std::shared_ptr<const augment::Plan> plan_of(const StrategyOptions& options) {
  return std::make_shared<augment::Plan>(
      std::vector<OpSpec>{}, Source{options.input, options.channels},
      OutputOptions{options.dtype, Layout::chw, options.mean, options.std}, Resample::once);
}

class Normalize : public ::testing::TestWithParam<int> {
 protected:
  int channels() const { return GetParam(); }

  TrainingRun run_of(const StrategyOptions& options) const {
    TrainingRun run;
    run.strategy = options;
    run.training.epochs = 2;
    run.training.batch = 16;
    run.training.schedule.lr = 0.02;
    run.make_loader = [options](LoaderOptions loading) {
      loading.workers = 1;
      loading.shuffle.kind = Shuffle::Kind::global;
      return Loader(std::make_shared<Levels>(40, options.input, options.channels), plan_of(options),
                    loading);
    };
    return run;
  }

  template <class Strategy>
  Outcome train(const StrategyOptions& options) const {
    Strategy strategy(options);
    test::fill_by_name(strategy.model());
    return test::train(strategy, run_of(options));
  }
};

void expect_same(const Outcome& one, const Outcome& other) {
  ASSERT_EQ(one.losses.size(), 6u);
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_EQ(one.hash, other.hash);
  EXPECT_EQ(one.result.evaluation.value().loss_sum, other.result.evaluation.value().loss_sum);
  EXPECT_EQ(one.result.evaluation.value().confusion, other.result.evaluation.value().confusion);
}

/// The promised bound is f32's rounding of three operations; on the CPU the results are equal.
TEST_P(Normalize, MakesTheBitsOfTheLoadersStore) {
  const StrategyOptions options = options_of(channels());
  const auto reader = std::make_shared<Levels>(16, options.input, channels());
  LoaderOptions loading;
  loading.batch = 16;
  Loader floats(reader, plan_of(options), loading);
  Loader levels(reader, plan_of(on_device(options)), loading);
  const Batch expected = floats.next();
  const Batch batch = levels.next();
  EXPECT_EQ(batch.bytes() * 4, expected.bytes());
  const torch::Tensor made = Normalization(
      on_device(options), torch::kCPU)(images_of(batch, whole(batch), on_device(options)));
  const torch::Tensor stored = images_of(expected, whole(expected), options);
  EXPECT_EQ(made.scalar_type(), torch::kFloat);
  EXPECT_EQ(made.strides(), stored.strides());
  EXPECT_TRUE(torch::equal(made, stored));
  EXPECT_LT(stored.min().item<float>(), -0.4f);  // equality is not due to empty content
}

TEST_P(Normalize, SingleTrainsAndEvaluatesAlike) {
  const StrategyOptions options = options_of(channels());
  expect_same(train<Single>(on_device(options)), train<Single>(options));
}

TEST_P(Normalize, ReplicasTrainAlike) {
  StrategyOptions options = options_of(channels());
  options.strategy = "data_parallel";
  options.replicas = 3;
  expect_same(train<DataParallel>(on_device(options)), train<DataParallel>(options));
}

TEST_P(Normalize, RanksTrainAlike) {
  StrategyOptions options = options_of(channels());
  options.strategy = "ddp";
  const auto floats = test::train_ranks(run_of(options), 2);
  const auto levels = test::train_ranks(run_of(on_device(options)), 2);
  for (std::size_t rank = 0; rank < 2; ++rank) expect_same(levels[rank], floats[rank]);
}

INSTANTIATE_TEST_SUITE_P(Channels, Normalize, ::testing::Values(1, 3));

}  // namespace
}  // namespace millrace::train
