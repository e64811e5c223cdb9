// Mixed precision (train.amp) step by step: equal bits to LibTorch's own autocast on this
// processor, and PyTorch's numbers from another one (tests/golden/make_training.py).
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "strategies/torch/single.h"
#include "tests/torch/formula.h"
#include "tests/torch/golden.h"
#include "tests/torch/model_formula.h"
#include "tests/torch/options.h"

namespace millrace::train {
namespace {

using test::set;

using nlohmann::json;
using torch::Tensor;

constexpr std::int64_t kSamples = 150;
constexpr std::int64_t kBatch = 32;  // five batches per epoch, the last of 22
constexpr std::uint64_t kEpochs = 4;
constexpr double kRate = 0.02;
constexpr double kMomentum = 0.9;

StrategyOptions lenet(const std::string& amp, double momentum) {
  StrategyOptions options;
  options.sample.size = {28, 28};
  set(options, "train.momentum", momentum);
  set(options, "train.amp", amp);
  return options;
}

Loader loader_of(std::int64_t batch, std::uint64_t epochs) {
  return test::formula_loader({{28, 28}, 1, DType::f32, Layout::chw}, kSamples, batch, epochs);
}

double step(Single& single, Batch batch, double lr) {
  measure::SpanClock spans(base::Clock::now());
  const StepContext place{.window_samples = batch.count(), .lr = lr};
  single.step(std::move(batch), place, spans);
  return single.take_finished().at(0).loss.value();
}

/// LeNet-5 and SGD by plain calls of LibTorch, following its documentation of mixed precision:
/// autocast around the forward pass and the loss only, and a scaled loss for f16.
class Reference {
 public:
  explicit Reference(torch::Dtype dtype) : dtype_(dtype) {}

  void take_weights(const torch::nn::Module& model) {
    for (const auto& parameter : model.named_parameters())
      weights_[parameter.key()] = parameter.value().detach().clone().requires_grad_(true);
  }

  Tensor logits(const Tensor& images) const {
    const Under autocast(dtype_);
    return forward(images);
  }

  /// Takes one step with momentum. Returns the loss.
  double step(const Tensor& images, const Tensor& labels) {
    const Tensor loss = [&] {
      const Under autocast(dtype_);
      return at::cross_entropy_loss(forward(images), labels);
    }();
    const bool scaled = dtype_ == torch::kFloat16;
    (scaled ? loss * scale_ : loss).backward();
    bool finite = true;
    for (auto& [name, weight] : weights_) {
      if (scaled) weight.mutable_grad() = weight.grad() / scale_;
      finite = finite && weight.grad().isfinite().all().item<bool>();
    }
    const torch::NoGradGuard no_grad;
    if (finite) {
      for (auto& [name, weight] : weights_) {
        Tensor& velocity = velocities_[name];
        velocity = velocity.defined() ? velocity * kMomentum + weight.grad() : weight.grad();
        weight.sub_(velocity * kRate);
      }
      ++updates_;
    } else {
      scale_ /= 2;
    }
    return loss.item<double>();
  }

  const std::map<std::string, Tensor>& weights() const { return weights_; }
  int updates() const { return updates_; }

 private:
  struct Under {
    explicit Under(torch::Dtype dtype) {
      at::autocast::set_autocast_dtype(at::kCPU, dtype);
      at::autocast::set_autocast_enabled(at::kCPU, true);
    }
    ~Under() {
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
    }
  };

  Tensor forward(const Tensor& images) const {
    const auto weight = [&](const std::string& layer) { return weights_.at(layer + ".weight"); };
    const auto bias = [&](const std::string& layer) { return weights_.at(layer + ".bias"); };
    const auto convolved = [&](const Tensor& x, const std::string& layer, std::int64_t padding) {
      const Tensor sums = at::conv2d(x, weight(layer), bias(layer), {1, 1}, {padding, padding});
      return at::max_pool2d(at::relu(sums), 2);
    };
    const auto linear = [&](const Tensor& x, const std::string& layer) {
      return at::linear(x, weight(layer), bias(layer));
    };
    Tensor x = convolved(convolved(images, "conv1", 2), "conv2", 0);
    x = at::relu(linear(at::flatten(x, 1), "fc1"));
    return linear(at::relu(linear(x, "fc2")), "fc3").to(torch::kFloat32);
  }

  torch::Dtype dtype_;
  std::map<std::string, Tensor> weights_, velocities_;
  double scale_ = 65536;  ///< initial scale of torch.amp.GradScaler
  int updates_ = 0;
};

/// A batch's images and labels, by sample.
struct Samples {
  Tensor images, labels;
};
Samples copy_of(const Batch& batch) {
  const std::int64_t count = batch.count();
  const Tensor planes =
      torch::from_blob(const_cast<std::byte*>(batch.data()), {count, 1, 28, 28}).clone();
  return {
      planes.as_strided(planes.sizes(), {28 * 28, 1, 28, 1}),  // one plane as pixels
      torch::from_blob(const_cast<std::int64_t*>(batch.labels()), {count}, torch::kLong).clone()};
}

class Amp : public ::testing::TestWithParam<const char*> {};

// Whatever this processor's kernels round to, both sides round alike.
TEST_P(Amp, HasTheBitsOfLibTorchsAutocast) {
  const bool bf16 = std::string(GetParam()) == "bf16";
  Single single(lenet(GetParam(), kMomentum));
  test::fill_by_name(single.model());
  Reference reference(bf16 ? torch::kBFloat16 : torch::kFloat16);
  Loader loader = loader_of(kBatch, bf16 ? kEpochs : kEpochs / 2);  // f16 is slow on a CPU
  // Autocast in backward changes no bit of this model, because all ops already have their type.
  int backwards = 0;
  single.model().named_parameters()["fc3.weight"].register_hook([&](const Tensor&) {
    ++backwards;
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU)) << "left on in backward";
  });
  int steps = 0;
  for (Batch batch = loader.next(); batch; batch = loader.next()) {
    SCOPED_TRACE("step " + std::to_string(++steps));
    reference.take_weights(single.model());
    const Samples samples = copy_of(batch);
    const double loss = step(single, std::move(batch), kRate);
    EXPECT_EQ(loss, reference.step(samples.images, samples.labels));
    for (const auto& parameter : single.model().named_parameters()) {
      const Tensor& expected = reference.weights().at(parameter.key());
      // Only the fused optimizer's own f32 rounding may differ.
      EXPECT_LE((parameter.value() - expected).abs().max().item<double>(),
                3e-7 * expected.abs().max().item<double>())
          << parameter.key();
    }
  }
  EXPECT_EQ(steps, bf16 ? 20 : 10);
  EXPECT_EQ(backwards, steps);
  if (bf16)
    EXPECT_EQ(reference.updates(), steps);
  else  // the scaler was seen doing both of its tasks
    EXPECT_TRUE(reference.updates() >= 5 && reference.updates() < steps) << reference.updates();

  reference.take_weights(single.model());
  Loader all = loader_of(kSamples, 1);
  const Evaluation evaluation = single.evaluate(all).value();
  Loader again = loader_of(kSamples, 1);
  const Samples samples = copy_of(again.next());
  const torch::NoGradGuard no_grad;
  const Tensor logits = reference.logits(samples.images).to(torch::kDouble);
  const double loss_sum =
      at::cross_entropy_loss(logits, samples.labels, {}, at::Reduction::Sum).item<double>();
  EXPECT_NEAR(evaluation.loss_sum, loss_sum, 1e-6 * loss_sum);
}

INSTANTIATE_TEST_SUITE_P(Types, Amp, ::testing::Values("bf16", "f16"),
                         [](const auto& one) { return std::string(one.param); });

// PyTorch's losses and gradients, made by a processor with AVX-512 BF16. Every step starts from the
// weights of a run in f32 (equal on all processors to 1e-6), so that only one step's rounding
// separates the two.
//
// The loss. A bf16 op rounds each exact product sum once, with relative error u = 2^-8. Two
// processors sum in f32, in different orders: errors of about sqrt(n) * 2^-24 times the terms'
// size, some 1e-5 of the result with n <= 400 and cancellation. They round differently only if a
// midpoint between bf16 neighbours lies between their sums: p <= 1e-5 / 2u, one result in a
// thousand, which then differs by at most 2u. To first order the loss moves by sum(dL/da * da) over
// all op results a; with independent signs this has the standard deviation 2u * sqrt(p * sum((a *
// dL/da)^2)). The root of that sum is 0.27 of the loss at step 1 and less at the others, which
// gives a standard deviation of 7e-5 of the loss; the tolerance is three of them. Measured between
// AVX2 and AVX-512 BF16: 5e-6 at most. Without autocast the loss is off by 1e-3 at step 1 and by
// more than 2e-4 at half of the steps.
//
// The gradients. Kernels differ in where they round (some AVX2 ones round the sum of each sample),
// so each op between the loss and a parameter may move its gradient by u of its norm on each of the
// two processors: 2u per op. Measured: 1.6e-2 at most, for conv1 with its five ops.
constexpr double kLossTolerance = 2e-4;
constexpr double kRoundingOfAnOp = 0x2p-8;

TEST(GoldenAmp, FollowsPyTorchOfAnotherProcessor) {
  const json expected = test::read_golden("training.json")["bf16"];
  const std::map<std::string, int> ops{
      {"conv1", 5}, {"conv2", 4}, {"fc1", 3}, {"fc2", 2}, {"fc3", 1}};

  Single exact(lenet("off", kMomentum));
  test::fill_by_name(exact.model());
  Single mixed(lenet("bf16", /*momentum=*/0));
  const auto take_weights = [&] {
    const torch::NoGradGuard no_grad;
    const auto from = exact.model().named_parameters();
    for (auto& parameter : mixed.model().named_parameters())
      parameter.value().copy_(from[parameter.key()]);
  };
  Loader loader = loader_of(kBatch, kEpochs);
  Loader same = loader_of(kBatch, kEpochs);
  int number = 0;
  for (const json& one : expected["steps"]) {
    SCOPED_TRACE("step " + std::to_string(++number));
    take_weights();
    const double loss = one["loss"];
    EXPECT_NEAR(step(mixed, loader.next(), /*lr=*/1), loss, kLossTolerance * loss);
    const auto before = exact.model().named_parameters();
    for (const auto& parameter : mixed.model().named_parameters()) {
      const std::string& name = parameter.key();
      const double norm = one["gradients"][name];
      const double ours = (before[name] - parameter.value()).norm().item<double>();
      EXPECT_NEAR(ours, norm, ops.at(name.substr(0, name.find('.'))) * kRoundingOfAnOp * norm)
          << name;
    }
    step(exact, same.next(), kRate);
  }
  EXPECT_EQ(number, 20);
  take_weights();
  Loader all = loader_of(kSamples, 1);
  const double loss_sum = expected["loss_sum"];
  EXPECT_NEAR(mixed.evaluate(all).value().loss_sum, loss_sum, kLossTolerance * loss_sum);
}

}  // namespace
}  // namespace millrace::train
