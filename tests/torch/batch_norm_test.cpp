// Batch norm: LibTorch's own without a reducer, and over all participants' samples with one.
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <ostream>
#include <thread>

#include "millrace/error.h"
#include "models/layers.h"
#include "models/registry.h"
#include "tests/torch/needs_device.h"

namespace millrace::train {
namespace {

using torch::Tensor;

/// Sums over threads: each adds its part, all wait, each copies the sum.
class ReplicaBarrier {
 public:
  explicit ReplicaBarrier(int threads)
      : barrier_(threads), parts_(static_cast<std::size_t>(threads)) {}

  class Seat : public StatisticsReducer {
   public:
    Seat(ReplicaBarrier& barrier, std::size_t rank) : replica_barrier_(barrier), rank_(rank) {}
    void all_reduce(Tensor& sums) override {
      ++calls;
      replica_barrier_.parts_[rank_] = sums.clone();
      replica_barrier_.barrier_.arrive_and_wait();
      Tensor total = torch::zeros_like(sums);
      for (const Tensor& part : replica_barrier_.parts_) total += part;
      replica_barrier_.barrier_.arrive_and_wait();
      sums.copy_(total);
    }
    int rank() const override { return static_cast<int>(rank_); }
    int world() const override { return static_cast<int>(replica_barrier_.parts_.size()); }
    int calls = 0;

   private:
    ReplicaBarrier& replica_barrier_;
    std::size_t rank_;
  };

 private:
  std::barrier<> barrier_;
  std::vector<Tensor> parts_;
};

void run_threads(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < count; ++rank) threads.emplace_back(work, rank);
  for (std::thread& thread : threads) thread.join();
}

double distance(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

struct Case {
  torch::ScalarType type;
  std::vector<std::int64_t> split;  ///< samples per participant
  double tolerance;
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << torch::toString(one.type);
  for (const std::int64_t samples : one.split) *out << "_" << samples;
}

class Together : public ::testing::TestWithParam<Case> {};

TEST_P(Together, AgreesWithOneBatchNormOverAllSamples) {
  const auto& [type, split, tolerance] = GetParam();
  torch::manual_seed(1);
  const auto options = torch::TensorOptions(type);
  const Tensor images = torch::randn({8, 5, 4, 3}, options) * 3 + 2;
  const Tensor upstream = torch::randn({8, 5, 4, 3}, options);
  const Tensor scale = torch::rand({5}, options) + 0.5;
  const Tensor shift = torch::randn({5}, options);
  const auto set = [&](auto& norm) {
    norm->to(type);
    const torch::NoGradGuard no_grad;
    norm->weight.copy_(scale);
    norm->bias.copy_(shift);
  };

  torch::nn::BatchNorm2d whole(5);
  set(whole);
  Tensor whole_input = images.clone().requires_grad_();
  std::vector<Tensor> whole_outputs;
  for (int step = 0; step < 2; ++step) {
    whole_outputs.push_back(whole(whole_input * (step + 1)));
    whole_outputs.back().backward(upstream);
  }

  ReplicaBarrier barrier(static_cast<int>(split.size()));
  const std::vector<Tensor> input_parts = images.split_with_sizes(split);
  const std::vector<Tensor> upstream_parts = upstream.split_with_sizes(split);
  std::vector<BatchNorm> norms;
  std::vector<Tensor> inputs(split.size());
  std::vector<std::vector<Tensor>> outputs(split.size());
  for (std::size_t rank = 0; rank < split.size(); ++rank) {
    norms.emplace_back(5);
    set(norms.back());
    norms.back()->set_reducer(std::make_shared<ReplicaBarrier::Seat>(barrier, rank));
    inputs[rank] = input_parts[rank].clone().requires_grad_();
  }
  run_threads(split.size(), [&](std::size_t rank) {
    for (int step = 0; step < 2; ++step) {
      const Tensor output = norms[rank](inputs[rank] * (step + 1));
      outputs[rank].push_back(output.detach().clone());
      output.backward(upstream_parts[rank]);
    }
  });

  for (std::size_t step = 0; step < 2; ++step) {
    std::vector<Tensor> parts;
    for (const auto& own : outputs) parts.push_back(own[step]);
    EXPECT_LE(distance(torch::cat(parts), whole_outputs[step]), tolerance);
  }
  std::vector<Tensor> gradients;
  Tensor weight_gradient = torch::zeros({5}, options), bias_gradient = torch::zeros({5}, options);
  for (std::size_t rank = 0; rank < split.size(); ++rank) {
    gradients.push_back(inputs[rank].grad());
    weight_gradient += norms[rank]->weight.grad();
    bias_gradient += norms[rank]->bias.grad();
    EXPECT_LE(distance(norms[rank]->running_mean, whole->running_mean), tolerance);
    EXPECT_LE(distance(norms[rank]->running_var, whole->running_var), tolerance);
    EXPECT_EQ(norms[rank]->num_batches_tracked.item<std::int64_t>(), 2);
  }
  EXPECT_LE(distance(torch::cat(gradients), whole_input.grad()), tolerance);
  EXPECT_LE(distance(weight_gradient, whole->weight.grad()), 10 * tolerance);  // sums of 96 values
  EXPECT_LE(distance(bias_gradient, whole->bias.grad()), 10 * tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    BatchNorm, Together,
    ::testing::Values(Case{torch::kFloat, {4, 4}, 1e-5}, Case{torch::kFloat, {2, 6}, 1e-5},
                      Case{torch::kFloat, {0, 8}, 1e-5}, Case{torch::kFloat, {3, 0, 5}, 1e-5},
                      Case{torch::kDouble, {4, 4}, 1e-10}, Case{torch::kDouble, {2, 6}, 1e-10},
                      Case{torch::kDouble, {8, 0}, 1e-10}),
    ::testing::PrintToStringParamName());

/// Stands for all participants in one thread, because a device's backward passes share one of
/// LibTorch's: adds up what they give, and hands out sums that an earlier run has added up.
class EarlierSums : public StatisticsReducer {
 public:
  EarlierSums(std::vector<Tensor> known, std::size_t participants)
      : known_(std::move(known)), participants_(participants) {}
  void all_reduce(Tensor& sums) override {
    if (at_ == added_.size()) added_.push_back(torch::zeros_like(sums));
    added_[at_] += sums;
    if (at_ < known_.size()) sums.copy_(known_[at_]);
    ++at_;
  }
  int rank() const override { return participant_; }
  int world() const override { return static_cast<int>(participants_); }
  void begin_participant(std::size_t number) {
    participant_ = static_cast<int>(number);
    at_ = 0;
  }
  const std::vector<Tensor>& added() const { return added_; }

 private:
  std::vector<Tensor> known_, added_;
  std::size_t participants_;
  int participant_ = 0;
  std::size_t at_ = 0;
};

class TogetherOnCuda : public ::testing::TestWithParam<std::vector<std::int64_t>> {
 protected:
  void SetUp() override {
    test::load_device_or_skip("SYNCHRONISED BATCH NORM IS NOT TESTED ON CUDA HERE");
  }
};

TEST_P(TogetherOnCuda, AgreesWithOneBatchNormOverAllSamples) {
  for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
    torch::manual_seed(1);
    const Tensor images = (torch::randn({8, 5, 4, 3}) * 3 + 2).contiguous(format);
    const Tensor upstream = torch::randn({8, 5, 4, 3});
    torch::nn::BatchNorm2d whole(5);
    Tensor whole_input = images.clone().requires_grad_();
    const Tensor wanted = whole(whole_input);
    wanted.backward(upstream);

    const std::vector<Tensor> parts = images.split_with_sizes(GetParam());
    const std::vector<Tensor> deltas = upstream.split_with_sizes(GetParam());
    std::vector<Tensor> known, outputs, gradients;
    Tensor of_weight, of_bias, mean, variance;
    for (int run = 0; run < 3; ++run) {  // learns the sums forward, then those backward
      const auto sums = std::make_shared<EarlierSums>(known, parts.size());
      outputs.clear();
      gradients.clear();
      of_weight = of_bias = torch::zeros({5});
      for (std::size_t i = 0; i < parts.size(); ++i) {
        BatchNorm norm(5);
        norm->to(torch::kCUDA);
        norm->set_reducer(sums);
        sums->begin_participant(i);
        Tensor input = parts[i].to(torch::kCUDA).requires_grad_();
        const Tensor output = norm(input);
        output.backward(deltas[i].to(torch::kCUDA));
        outputs.push_back(output.detach().cpu());
        gradients.push_back(input.grad().cpu());
        of_weight = of_weight + norm->weight.grad().cpu();
        of_bias = of_bias + norm->bias.grad().cpu();
        mean = norm->running_mean.cpu();
        variance = norm->running_var.cpu();
      }
      ASSERT_EQ(sums->added().size(), 2u) << "one sum forward and one backward";
      known.assign(sums->added().begin(), sums->added().begin() + std::min(run + 1, 2));
    }
    EXPECT_LE(distance(torch::cat(outputs), wanted), 1e-5);
    EXPECT_LE(distance(torch::cat(gradients), whole_input.grad()), 1e-5);
    EXPECT_LE(distance(of_weight, whole->weight.grad()), 1e-4);
    EXPECT_LE(distance(of_bias, whole->bias.grad()), 1e-4);
    EXPECT_LE(distance(mean, whole->running_mean), 1e-5);
    EXPECT_LE(distance(variance, whole->running_var), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(BatchNorm, TogetherOnCuda,
                         ::testing::Values(std::vector<std::int64_t>{8},
                                           std::vector<std::int64_t>{2, 6},
                                           std::vector<std::int64_t>{0, 3, 5}),
                         [](const auto& split) { return std::to_string(split.index); });

TEST(BatchNorm, AloneItIsLibTorchsBitForBit) {
  torch::manual_seed(2);
  BatchNorm ours(4);
  torch::nn::BatchNorm2d theirs(4);
  std::vector<std::string> names, their_names;
  for (const auto& item : ours->named_parameters()) names.push_back(item.key());
  for (const auto& item : ours->named_buffers()) names.push_back(item.key());
  for (const auto& item : theirs->named_parameters()) their_names.push_back(item.key());
  for (const auto& item : theirs->named_buffers()) their_names.push_back(item.key());
  EXPECT_EQ(names, their_names);
  for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
    const Tensor images = torch::randn({6, 4, 5, 5}).contiguous(format);
    Tensor a = images.clone().requires_grad_(), b = images.clone().requires_grad_();
    const Tensor out = ours(a), expected = theirs(b);
    EXPECT_TRUE(torch::equal(out, expected));
    out.square().sum().backward();
    expected.square().sum().backward();
    EXPECT_TRUE(torch::equal(a.grad(), b.grad()));
  }
  EXPECT_TRUE(torch::equal(ours->weight.grad(), theirs->weight.grad()));
  EXPECT_TRUE(torch::equal(ours->running_mean, theirs->running_mean));
  EXPECT_TRUE(torch::equal(ours->running_var, theirs->running_var));
  EXPECT_TRUE(torch::equal(ours->num_batches_tracked, theirs->num_batches_tracked));
  ours->eval();
  theirs->eval();
  const Tensor one = torch::randn({1, 4, 1, 1});
  EXPECT_TRUE(torch::equal(ours(one), theirs(one)));
}

TEST(BatchNorm, HalfPrecisionImagesKeepTheirTypeAndAreSummedInDouble) {
  torch::manual_seed(5);
  ReplicaBarrier barrier(1);
  BatchNorm norm(3), exact(3);
  norm->set_reducer(std::make_shared<ReplicaBarrier::Seat>(barrier, 0));
  Tensor images = (torch::randn({4, 3, 6, 6}) + 4).to(torch::kBFloat16).requires_grad_();
  const Tensor out = norm(images);
  EXPECT_EQ(out.scalar_type(), torch::kBFloat16);
  EXPECT_LE(distance(out.to(torch::kFloat), exact(images.to(torch::kFloat))), 0.02);
  EXPECT_LE(distance(norm->running_mean, exact->running_mean), 1e-6);
  out.sum().backward();
  EXPECT_EQ(images.grad().scalar_type(), torch::kBFloat16);
  EXPECT_EQ(norm->weight.grad().scalar_type(), torch::kFloat);
}

TEST(BatchNorm, OneValueAChannelHasNoVariance) {
  BatchNorm norm(4);
  EXPECT_THROW(norm(torch::randn({1, 4, 1, 1})), RunError);
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 0);
  ReplicaBarrier barrier(1);
  norm->set_reducer(std::make_shared<ReplicaBarrier::Seat>(barrier, 0));
  EXPECT_THROW(norm(torch::randn({1, 4, 1, 1})), RunError);
  EXPECT_TRUE(torch::equal(norm->running_var, torch::ones(4)));
}

TEST(BatchNorm, EvaluationReducesNothingAndTheReducerCanBeTakenAway) {
  ReplicaBarrier barrier(1);
  const auto seat = std::make_shared<ReplicaBarrier::Seat>(barrier, 0);
  const auto model = make_model("resnet18", {3, {8, 8}, 10});
  EXPECT_EQ(set_statistics_reducer(*model, seat), 20u);
  const torch::NoGradGuard no_grad;
  model->eval();
  model->forward(torch::zeros({2, 3, 8, 8}));
  EXPECT_EQ(seat->calls, 0);
  model->train();
  model->forward(torch::zeros({2, 3, 8, 8}));
  EXPECT_EQ(seat->calls, 20);
  set_statistics_reducer(*model, nullptr);
  model->forward(torch::zeros({2, 3, 8, 8}));
  EXPECT_EQ(seat->calls, 20);
  EXPECT_EQ(set_statistics_reducer(*make_model("lenet5", {1, {28, 28}, 10}), seat), 0u);
}

/// A ResNet whose batch is split over threads, one of them without samples.
TEST(BatchNorm, AWholeModelOnThreeThreadsIsTheModelOnOne) {
  torch::manual_seed(3);
  const Tensor images = torch::randn({6, 3, 16, 16}, torch::kDouble);
  const Tensor labels = torch::arange(6) % 4;
  const std::vector<std::int64_t> split{1, 5, 0};
  const auto make = [] {
    torch::manual_seed(4);
    const auto model = make_model("resnet18", {3, {16, 16}, 4}, {.variant = "cifar"});
    model->to(torch::kDouble);
    return model;
  };
  const auto loss_of = [&](Classifier& model, const Tensor& x, const Tensor& y) {
    return at::cross_entropy_loss(model.forward(x), y, {}, at::Reduction::Sum) / 6;
  };
  const auto whole = make();
  loss_of(*whole, images, labels).backward();

  ReplicaBarrier barrier(3);
  std::vector<std::shared_ptr<Classifier>> replicas;
  std::vector<std::shared_ptr<ReplicaBarrier::Seat>> seats;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    replicas.push_back(make());
    seats.push_back(std::make_shared<ReplicaBarrier::Seat>(barrier, rank));
    set_statistics_reducer(*replicas.back(), seats.back());
  }
  run_threads(3, [&](std::size_t rank) {
    loss_of(*replicas[rank], images.split_with_sizes(split)[rank],
            labels.split_with_sizes(split)[rank])
        .backward();
  });
  for (const auto& seat : seats) EXPECT_EQ(seat->calls, 40);
  for (const auto& parameter : whole->named_parameters()) {
    Tensor sum = torch::zeros_like(parameter.value());
    for (const auto& replica : replicas) sum += replica->named_parameters()[parameter.key()].grad();
    const Tensor& expected = parameter.value().grad();
    EXPECT_LE(distance(sum, expected), 1e-9 * (1 + expected.abs().max().item<double>()))
        << parameter.key();
  }
  for (const auto& buffer : whole->named_buffers())
    for (const auto& replica : replicas)
      EXPECT_LE(distance(replica->named_buffers()[buffer.key()], buffer.value()), 1e-10)
          << buffer.key();
}

}  // namespace
}  // namespace millrace::train
