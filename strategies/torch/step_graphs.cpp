// Warms up, captures and replays whole steps on two inputs in turn.
#include "strategies/torch/step_graphs.h"

#include <string>
#include <utility>

#include "millrace/error.h"

namespace millrace::train {

std::vector<torch::Tensor> capture_aside(DeviceGraph& graph, DeviceStreams& streams,
                                         const DeviceGraph::Work& work) {
  std::vector<torch::Tensor> results;
  try {
    streams.on_side_stream([&] { results = graph.capture(work); });
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    throw RunError(
        "the training step cannot be captured as a CUDA graph: " + what.substr(0, what.find('\n')),
        "set train.cuda_graphs=off");
  }
  return results;
}

StepGraphs::StepGraphs(std::unique_ptr<DeviceGraph> graph, DeviceStreams& streams,
                       torch::Device device, std::int64_t samples)
    : streams_(streams), device_(device), samples_(samples) {
  inputs_[1].graph = graph->sibling();
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
      input.read = streams_.fence();  // earlier work may still use the memory
    }
  }
  return form == form_;
}

torch::Tensor StepGraphs::run(const Send& send, measure::SpanClock& spans, const Step& step) {
  Input& input = inputs_[at_];
  at_ = (at_ + 1) % inputs_.size();
  set_up_ = measure::SetUp::none;
  const Samples samples = send(input.block, *input.read);
  torch::Tensor loss;
  if (!input.loss.defined() && warm_ups_ < kGraphWarmUps) {
    ++warm_ups_;
    set_up_ = measure::SetUp::warm_up;
    streams_.on_side_stream([&] { loss = step(samples, &spans); });
  } else {
    spans.enter(measure::Span::forward);
    if (!input.loss.defined()) {
      set_up_ = measure::SetUp::capture;
      input.loss = capture_aside(*input.graph, streams_, [samples, step] {
                     return std::vector<torch::Tensor>{step(samples, /*spans=*/nullptr)};
                   }).front();
    }
    input.graph->replay();
    loss = input.loss;
  }
  input.read = streams_.fence();
  return loss;
}

}  // namespace millrace::train
