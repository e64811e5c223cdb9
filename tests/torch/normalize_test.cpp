// output.normalize=device: the numbers of the loader's own store, wherever they are computed.
#include <gtest/gtest.h>

#include <cstring>

#include "augment/plan/plan.h"
#include "millrace/error.h"
#include "strategies/torch/data_parallel.h"
#include "strategies/torch/device.h"
#include "strategies/torch/single.h"
#include "tests/torch/ranks.h"

namespace millrace::train {
namespace {

using test::Outcome;
using test::set;
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
  set(options, "model.name", channels == 3 ? "lenet5_cifar" : "lenet5");
  options.sample.channels = channels;
  options.sample.size = channels == 3 ? Size{32, 32} : Size{28, 28};
  set(options, "output.mean",
      channels == 3 ? std::vector<double>{0.485, 0.456, 0.406} : std::vector<double>{0.1307});
  set(options, "output.std",
      channels == 3 ? std::vector<double>{0.229, 0.224, 0.225} : std::vector<double>{0.3081});
  set(options, "train.momentum", 0.9);
  return options;
}

StrategyOptions on_device(StrategyOptions options) {
  options.sample.dtype = DType::u8;
  set(options, "output.normalize", "device");
  return options;
}

std::shared_ptr<const augment::Plan> plan_of(const StrategyOptions& options) {
  return std::make_shared<augment::Plan>(
      std::vector<OpSpec>{}, Source{options.sample.size, options.sample.channels},
      OutputOptions{options.sample.dtype, options.sample.layout,
                    options.recipe.numbers("output.mean"), options.recipe.numbers("output.std")},
      Resample::once);
}

/// Returns the form that a model of the options' name would take; channels_last=auto is that of one
/// channel's planes, which are pixels too.
InputForm form_of(const StrategyOptions& options) {
  const std::string& channels_last = options.recipe.text("train.channels_last");
  return {options.recipe.text("model.name"), options.sample,
          channels_last == "on" || (channels_last == "auto" && options.sample.channels == 1)};
}

torch::Tensor normalized(const Batch& batch, const StrategyOptions& options) {
  const InputForm form = form_of(options);
  return Normalization(options.recipe, form, torch::kCPU)(images_of(batch, whole(batch), form));
}

StrategyOptions with_layout(StrategyOptions options, Layout layout) {
  options.sample.layout = layout;
  return options;
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
      return Loader(std::make_shared<Levels>(40, options.sample.size, options.sample.channels),
                    plan_of(options), loading);
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

/// The tables are computed as the loader's are, on the host.
TEST_P(Normalize, MakesTheBitsOfTheLoadersStore) {
  const StrategyOptions options = options_of(channels());
  const auto reader = std::make_shared<Levels>(16, options.sample.size, channels());
  LoaderOptions loading;
  loading.batch = 16;
  Loader floats(reader, plan_of(options), loading);
  Loader levels(reader, plan_of(on_device(options)), loading);
  const Batch expected = floats.next();
  const Batch batch = levels.next();
  EXPECT_EQ(batch.bytes() * 4, expected.bytes());
  const torch::Tensor made = normalized(batch, on_device(options));
  const torch::Tensor stored = images_of(expected, whole(expected), form_of(options));
  EXPECT_EQ(made.scalar_type(), torch::kFloat);
  EXPECT_EQ(made.strides(), stored.strides());
  EXPECT_TRUE(torch::equal(made, stored));
  EXPECT_LT(stored.min().item<float>(), -0.4f);  // equality is not due to empty content
}

/// From either layout to either layout and every element type, in mixed precision and without.
TEST_P(Normalize, OneKernelMakesEveryLayoutAndType) {
  const auto reader = std::make_shared<Levels>(5, options_of(channels()).sample.size, channels());
  LoaderOptions loading;
  loading.batch = 5;
  for (const Layout from : {Layout::chw, Layout::hwc})
    for (const Layout to : {Layout::chw, Layout::hwc})
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        StrategyOptions stored = with_layout(options_of(channels()), to);
        stored.sample.dtype = dtype;
        StrategyOptions options = with_layout(on_device(options_of(channels())), from);
        set(options, "train.channels_last", to == Layout::hwc ? "on" : "off");
        set(options, "train.amp",
            dtype == DType::f32   ? "off"
            : dtype == DType::f16 ? "f16"
                                  : "bf16");
        Loader levels(reader, plan_of(options), loading);
        Loader elements(reader, plan_of(stored), loading);
        const Batch batch = levels.next();
        const Batch expected = elements.next();
        const torch::Tensor made = normalized(batch, options);
        SCOPED_TRACE(std::string(name_of(dtype)) + (from == to ? ", same layout" : ", other"));
        ASSERT_TRUE(made.is_contiguous(to == Layout::hwc ? torch::MemoryFormat::ChannelsLast
                                                         : torch::MemoryFormat::Contiguous));
        ASSERT_EQ(made.nbytes(), expected.bytes());
        EXPECT_EQ(std::memcmp(made.const_data_ptr(), expected.data(), expected.bytes()), 0);
      }
}

/// Batches of pixels give the steps that batches of planes give, normalised here or there.
TEST_P(Normalize, PixelsTrainAsPlanesDo) {
  StrategyOptions planes = options_of(channels());
  set(planes, "train.channels_last", "on");
  const StrategyOptions pixels = with_layout(planes, Layout::hwc);
  const Outcome expected = train<Single>(planes);
  expect_same(train<Single>(pixels), expected);
  expect_same(train<Single>(on_device(pixels)), expected);
  StrategyOptions levels = on_device(pixels);
  set(levels, "train.channels_last", "off");
  StrategyOptions planar = planes;
  set(planar, "train.channels_last", "off");
  expect_same(train<Single>(levels), train<Single>(planar));
}

TEST_P(Normalize, PixelsForPlanarConvolutionsAreRefused) {
  StrategyOptions options = with_layout(options_of(channels()), Layout::hwc);
  set(options, "train.channels_last", "off");
  if (channels() == 1)
    EXPECT_NO_THROW(Single{options}) << "one plane is both";
  else
    EXPECT_THROW(Single{options}, UsageError);
}

/// Mixed precision gets the elements that its first convolution would have made of f32.
TEST_P(Normalize, MixedPrecisionTrainsAlike) {
  for (const char* amp : {"bf16", "f16"}) {
    SCOPED_TRACE(amp);
    StrategyOptions options = options_of(channels());
    set(options, "train.amp", amp);
    expect_same(train<Single>(on_device(options)), train<Single>(options));
  }
}

TEST_P(Normalize, SingleTrainsAndEvaluatesAlike) {
  const StrategyOptions options = options_of(channels());
  expect_same(train<Single>(on_device(options)), train<Single>(options));
}

TEST_P(Normalize, ReplicasTrainAlike) {
  StrategyOptions options = options_of(channels());
  set(options, "train.strategy", "data_parallel");
  set(options, "train.replicas", 3);
  const Outcome expected = train<DataParallel>(options);
  expect_same(train<DataParallel>(on_device(options)), expected);
  expect_same(train<DataParallel>(on_device(with_layout(options, Layout::hwc))), expected);
}

TEST_P(Normalize, RanksTrainAlike) {
  StrategyOptions options = options_of(channels());
  set(options, "train.strategy", "ddp");
  const auto floats = test::train_ranks(run_of(options), 2);
  const auto levels = test::train_ranks(run_of(on_device(options)), 2);
  for (std::size_t rank = 0; rank < 2; ++rank) expect_same(levels[rank], floats[rank]);
}

INSTANTIATE_TEST_SUITE_P(Channels, Normalize, ::testing::Values(1, 3));

}  // namespace
}  // namespace millrace::train
