// Warms up, captures and replays forward and backward passes.
#include "strategies/torch/graphed_steps.h"

#include <string>
#include <utility>

#include "millrace/error.h"

namespace millrace::train {
namespace {

torch::Tensor memory_like(const torch::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
}

bool same_form(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

}  // namespace

GraphedSteps::GraphedSteps(std::unique_ptr<DeviceGraph> graph, DeviceStreams& streams,
                           std::vector<torch::Tensor> parameters, std::int64_t samples)
    : graph_(std::move(graph)),
      streams_(streams),
      parameters_(std::move(parameters)),
      samples_(samples) {}

bool GraphedSteps::takes(const torch::Tensor& images, const torch::Tensor& targets) {
  if (images.size(0) != samples_) return false;
  if (!images_.defined()) {
    images_ = memory_like(images);
    targets_ = memory_like(targets);
  }
  return same_form(images, images_) && same_form(targets, targets_);
}

torch::Tensor GraphedSteps::run(const torch::Tensor& images, const torch::Tensor& targets,
                                pipeline::SpanClock& spans, const Pass& pass) {
  if (!takes(images, targets)) return pass(images, targets, &spans);
  images_.copy_(images, /*non_blocking=*/true);
  targets_.copy_(targets, /*non_blocking=*/true);
  if (!loss_.defined() && warm_ups_ < kWarmUps) {
    ++warm_ups_;
    torch::Tensor loss;
    streams_.aside([&] { loss = pass(images_, targets_, &spans); });
    return loss;
  }
  spans.enter(pipeline::Span::forward);
  if (!loss_.defined()) capture(pass);
  graph_->replay();
  // Points the handles, which the optimiser's step has dropped, to the memory that the replay
  // wrote.
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].mutable_grad() = gradients_[i];
  return loss_;
}

void GraphedSteps::capture(const Pass& pass) {
  std::vector<torch::Tensor> results;
  try {
    streams_.aside([&] {
      results = graph_->capture([this, pass] {
        std::vector<torch::Tensor> written{pass(images_, targets_, /*spans=*/nullptr)};
        for (const torch::Tensor& parameter : parameters_) written.push_back(parameter.grad());
        return written;
      });
    });
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    throw RunError(
        "the training step cannot be captured as a CUDA graph: " + what.substr(0, what.find('\n')),
        "set train.cuda_graphs=off");
  }
  loss_ = results.front();
  gradients_.assign(results.begin() + 1, results.end());
}

}  // namespace millrace::train
