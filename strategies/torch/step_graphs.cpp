// Warms up, captures and replays steps.
#include "strategies/torch/step_graphs.h"

#include <string>
#include <utility>

#include "millrace/error.h"

namespace millrace::train {

StepGraphs::StepGraphs(std::unique_ptr<DeviceGraph> graph, DeviceStreams& streams,
                       torch::Device device, std::int64_t samples,
                       std::vector<torch::Tensor> parameters)
    : streams_(streams), device_(device), samples_(samples), parameters_(std::move(parameters)) {
  inputs_.resize(has_whole_step() ? 2 : 1);
  if (has_whole_step()) inputs_[1].graph = graph->sibling();
  inputs_[0].graph = std::move(graph);
}

bool StepGraphs::takes(const Batch& batch) {
  if (batch.count() != samples_) return false;
  const void* const targets = batch.classes() == 0
                                  ? static_cast<const void*>(batch.labels())
                                  : static_cast<const void*>(batch.probabilities());
  const Form form{.bytes = block_of(batch).numel(),
                  .targets = static_cast<const std::byte*>(targets) - batch.data(),
                  .classes = batch.classes()};
  if (form_.bytes == 0) {
    form_ = form;
    for (Input& input : inputs_) {
      input.block = torch::empty({form.bytes}, torch::TensorOptions(device_).dtype(torch::kByte));
      if (inputs_.size() > 1) input.read = streams_.fence();  // earlier work may still use it
    }
  }
  return form == form_;
}

torch::Tensor StepGraphs::run(const Send& send, measure::SpanClock& spans, const Step& step) {
  Input& input = inputs_[at_];
  at_ = (at_ + 1) % inputs_.size();
  set_up_ = measure::SetUp::none;
  const Samples samples = send(input.block, input.read.get());
  torch::Tensor loss;
  if (!input.loss.defined() && warm_ups_ < kGraphWarmUps) {
    ++warm_ups_;
    set_up_ = measure::SetUp::warm_up;
    streams_.on_side_stream([&] { loss = step(samples, &spans); });
  } else {
    spans.enter(measure::Span::forward);
    if (!input.loss.defined()) {
      set_up_ = measure::SetUp::capture;
      capture(input, samples, step);
    }
    input.graph->replay();
    // Points the handles, which the optimizer's step has dropped, to the memory that the replay
    // wrote.
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      parameters_[i].mutable_grad() = gradients_[i];
    loss = input.loss;
  }
  if (inputs_.size() > 1) input.read = streams_.fence();
  return loss;
}

void StepGraphs::capture(Input& input, const Samples& samples, const Step& step) {
  const auto work = [this, samples, step] {
    std::vector<torch::Tensor> written{step(samples, /*spans=*/nullptr)};
    for (const torch::Tensor& parameter : parameters_) written.push_back(parameter.grad());
    return written;
  };
  std::vector<torch::Tensor> results;
  try {  // on the side stream, on which the warm-up ran
    streams_.on_side_stream([&] { results = input.graph->capture(work); });
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    throw RunError(
        "the training step cannot be captured as a CUDA graph: " + what.substr(0, what.find('\n')),
        "set train.cuda_graphs=off");
  }
  input.loss = results.front();
  gradients_.assign(results.begin() + 1, results.end());
}

}  // namespace millrace::train
