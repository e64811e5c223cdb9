// Steps as graphs: which batches are taken, what is sent where, and which gradients are left.
#include "strategies/torch/step_graphs.h"

#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <vector>

#include "millrace/error.h"
#include "tests/torch/fake_device.h"
#include "tests/torch/formula.h"

namespace millrace::train {
namespace {

using test::DeviceCalls;
using test::FakeGraph;
using test::FakeStreams;
using torch::Tensor;

constexpr std::int64_t kSamples = 4;

class StepGraphsTest : public ::testing::Test {
 protected:
  /// Returns the next batches of `samples` samples each.
  Batch batch_of(std::int64_t samples) {
    loaders_.emplace_back(new Loader(test::formula_loader(form_.sample, 8, samples)));
    return loaders_.back()->next();
  }
  /// Takes a step and says how, and on which input.
  std::string step(std::int64_t samples = kSamples) {
    const Batch batch = batch_of(samples);
    if (!graphs_.takes(batch)) return "eager";
    const DeviceCalls before = calls_;
    const void* place = nullptr;
    const auto send = [&](Tensor& block, DeviceMark* read) {
      streams_.copy_into(block, block_of(batch), *read);
      place = block.const_data_ptr();
      return samples_in(block, batch, form_);
    };
    const Tensor loss = graphs_.run(send, spans_, [this](const Samples& there, auto*) {
      read_.push_back(there.images.const_data_ptr());
      return there.images.sum() + there.targets.sum();
    });
    EXPECT_EQ(read_.back(), place) << "the step reads what was sent";
    EXPECT_EQ(loss.item<float>(), images_of(batch, whole(batch), form_).sum().item<float>() +
                                      labels_of(batch, whole(batch)).sum().item<float>());
    if (places_.empty() || (places_.size() == 1 && places_[0] != place)) places_.push_back(place);
    const std::string input = place == places_[0] ? " a" : " b";
    if (calls_.captures > before.captures) return "capture" + input;
    return (calls_.replays > before.replays ? "replay" : "warm-up") + input;
  }

  InputForm form_{"lenet5", {.size = {2, 1}, .channels = 1}, true};
  DeviceCalls calls_;
  FakeStreams streams_{calls_};
  StepGraphs graphs_{
      std::make_unique<FakeGraph>(
          calls_, [] { return std::vector<Tensor>{}; }, [] { return std::vector<Tensor>{}; }),
      streams_, torch::kCPU, kSamples};
  measure::SpanClock spans_{base::Clock::now()};
  std::vector<std::unique_ptr<Loader>> loaders_;
  std::vector<const void*> read_, places_;
};

TEST_F(StepGraphsTest, InputsTakeTurnsAndEachHasItsGraph) {
  EXPECT_EQ(step(3), "eager");
  EXPECT_EQ(step(), "warm-up a");
  EXPECT_EQ(step(), "warm-up b");
  EXPECT_EQ(step(), "warm-up a");
  EXPECT_EQ(step(), "capture b");
  EXPECT_EQ(calls_.replays, 1) << "the captured batch is a step, too";
  EXPECT_EQ(step(3), "eager");
  EXPECT_EQ(step(), "capture a");
  EXPECT_EQ(step(), "replay b");
  EXPECT_EQ(step(), "replay a");
  EXPECT_EQ(graphs_.last_set_up(), measure::SetUp::none);
  EXPECT_EQ(calls_.captures, 2);
  EXPECT_EQ(calls_.copies, 7) << "one per step, to where the graph reads it";
}

TEST_F(StepGraphsTest, BatchesOfAnotherFormRunEagerly) {
  EXPECT_EQ(step(), "warm-up a");
  form_.sample.size = {40, 1};
  EXPECT_EQ(step(), "eager") << "larger samples";
  form_.sample.size = {2, 1};
  EXPECT_EQ(step(), "warm-up b");
}

/// A step that leaves gradients: that of a model of one weight, which learns the sum of its images.
class GradientGraphsTest : public StepGraphsTest {
 protected:
  Tensor weight_ = torch::ones({1}).requires_grad_(true);
  std::exception_ptr failure_;

  StepGraphs graphs_with(std::unique_ptr<DeviceGraph> graph) {
    return {std::move(graph), streams_, torch::kCPU, kSamples, {weight_}};
  }
  StepGraphs one_graph_ = graphs_with(std::make_unique<FakeGraph>(
      calls_, [this] { return std::vector<Tensor>{weight_}; },
      [this] { return std::vector<Tensor>{weight_}; }));

  Tensor run(StepGraphs& graphs, const Batch& batch) {
    weight_.mutable_grad().reset();
    const auto send = [&](Tensor& block, DeviceMark* read) {
      EXPECT_EQ(read, nullptr) << "the copy is behind all earlier work";
      block.copy_(block_of(batch));
      return samples_in(block, batch, form_);
    };
    return graphs.run(send, spans_, [this](const Samples& there, measure::SpanClock* spans) {
      if (failure_) std::rethrow_exception(failure_);
      read_.push_back(there.images.const_data_ptr());
      if (spans != nullptr) spans->enter(measure::Span::backward);
      const Tensor loss = (there.images.sum() * weight_ - there.targets.sum()).sum();
      loss.backward();
      return loss.detach();
    });
  }
  /// Takes a step and says how.
  std::string step(std::int64_t samples = kSamples) {
    const Batch batch = batch_of(samples);
    if (!one_graph_.takes(batch)) return "eager";
    const DeviceCalls before = calls_;
    const float loss = run(one_graph_, batch).item<float>();
    const float sum = images_of(batch, whole(batch), form_).sum().item<float>();
    EXPECT_EQ(loss, sum - labels_of(batch, whole(batch)).sum().item<float>());
    EXPECT_EQ(weight_.grad().item<float>(), sum);
    weight_.mutable_grad().mul_(-3);  // an optimizer may change it
    if (calls_.captures > before.captures) return "capture";
    return calls_.replays > before.replays ? "replay" : "warm-up";
  }
};

TEST_F(GradientGraphsTest, OneGraphReadsEveryBatchAtOnePlace) {
  EXPECT_EQ(step(3), "eager");
  for (int i = 0; i < kGraphWarmUps; ++i) {
    EXPECT_EQ(step(), "warm-up");
    EXPECT_EQ(spans_.current(), measure::Span::backward);
    EXPECT_EQ(step(1), "eager");
  }
  EXPECT_EQ(step(), "capture");
  EXPECT_EQ(calls_.replays, 1) << "the captured batch is a step, too";
  EXPECT_EQ(spans_.current(), measure::Span::forward);
  EXPECT_EQ(step(2), "eager");
  spans_.enter(measure::Span::step);
  EXPECT_EQ(step(), "replay");
  EXPECT_EQ(spans_.current(), measure::Span::forward) << "a replay counts as forward";
  EXPECT_EQ(step(), "replay");
  EXPECT_EQ(calls_.captures, 1);
  for (const void* place : read_) EXPECT_EQ(place, read_[0]);
}

/// A graph whose capture fails as CUDA's do.
class Uncapturable final : public DeviceGraph {
 public:
  std::vector<Tensor> capture(const Work& work) override { return work(); }
  void replay() override { ADD_FAILURE() << "there is nothing to replay"; }
  std::unique_ptr<DeviceGraph> sibling() override { return std::make_unique<Uncapturable>(); }
};

TEST_F(GradientGraphsTest, AFailedCaptureIsOneLine) {
  StepGraphs graphs = graphs_with(std::make_unique<Uncapturable>());
  const Batch batch = batch_of(kSamples);
  ASSERT_TRUE(graphs.takes(batch));
  for (int i = 0; i < kGraphWarmUps; ++i) run(graphs, batch);
  const auto fails_as = [&](const auto& error) {
    failure_ = std::make_exception_ptr(error);
    try {
      run(graphs, batch);
      return std::string("no error");
    } catch (const RunError& failure) {
      return std::string(failure.what()) + " | " + failure.hint();
    }
  };
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  EXPECT_EQ(fails_as(c10::Error(here, "operation not permitted when stream is capturing\nmore")),
            "the training step cannot be captured as a CUDA graph: operation not permitted when "
            "stream is capturing | set train.cuda_graphs=off");
  EXPECT_EQ(fails_as(RunError("batch norm has one value", "a larger batch")),
            "batch norm has one value | a larger batch");
  EXPECT_THROW(fails_as(c10::OutOfMemoryError(here, "not enough")), c10::OutOfMemoryError)
      << "reported in words of its own";
}

}  // namespace
}  // namespace millrace::train
