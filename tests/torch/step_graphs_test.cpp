// Whole steps as graphs on two inputs: which batches are taken, and what is sent where.
#include "strategies/torch/step_graphs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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
    const auto send = [&](Tensor& block, DeviceMark& read) {
      streams_.copy_into(block, block_of(batch), read);
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

}  // namespace
}  // namespace millrace::train
