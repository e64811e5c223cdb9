// Warms up, captures and replays forward and backward passes.
#include "strategies/torch/single.h"

#include <string>
#include <utility>

#include "millrace/error.h"

namespace millrace::train {
namespace {

constexpr int kReplica = 0;

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
                                measure::SpanClock& spans, const Pass& pass) {
  set_up_ = measure::SetUp::none;
  if (!takes(images, targets)) return pass(images, targets, &spans);
  images_.copy_(images, /*non_blocking=*/true);
  targets_.copy_(targets, /*non_blocking=*/true);
  if (!loss_.defined() && warm_ups_ < kWarmUps) {
    ++warm_ups_;
    set_up_ = measure::SetUp::warm_up;
    torch::Tensor loss;
    streams_.on_side_stream([&] { loss = pass(images_, targets_, &spans); });
    return loss;
  }
  spans.enter(measure::Span::forward);
  if (!loss_.defined()) {
    capture(pass);
    set_up_ = measure::SetUp::capture;
  }
  graph_->replay();
  // Points the handles, which the optimizer's step has dropped, to the memory that the replay
  // wrote.
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].mutable_grad() = gradients_[i];
  return loss_;
}

void GraphedSteps::capture(const Pass& pass) {
  const std::vector<torch::Tensor> results = capture_aside(*graph_, streams_, [this, pass] {
    std::vector<torch::Tensor> written{pass(images_, targets_, /*spans=*/nullptr)};
    for (const torch::Tensor& parameter : parameters_) written.push_back(parameter.grad());
    return written;
  });
  loss_ = results.front();
  gradients_.assign(results.begin() + 1, results.end());
}

// Forward and backward pass on one device, eager or as a graph.

Single::Single(const StrategyOptions& options, std::unique_ptr<DeviceStreams> streams,
               std::unique_ptr<DeviceGraph> graph)
    : TorchStrategy(options, std::move(streams)) {
  if (options.graph_samples == 0) return;
  if (graph == nullptr) graph = cuda().value().make_graph();
  if (options.recipe.text("train.cuda_graphs") == "step")
    whole_.emplace(std::move(graph), *this->streams(), torch_device(), options.graph_samples);
  else
    graphed_.emplace(std::move(graph), *this->streams(), model().parameters(),
                     options.graph_samples);
}

TorchStrategy::Loss Single::gradients(Batch& batch, const StepContext& place,
                                      measure::SpanClock& spans) {
  if (batch.count() == 0) return {};
  spans.enter(measure::Span::h2d);
  if (whole_ && batch.count() == place.window_samples && is_settled() && whole_->takes(batch))
    return whole_step(batch, place, spans);
  if (!graphed_ || batch.count() != place.window_samples) {
    const Samples samples = take(batch);
    // On the CPU the first layer's gradient is the last op to read the pixels.
    return learn(model(), samples.images, samples.targets, place, kReplica, &counter(), &spans);
  }
  const Samples samples = send(batch);
  seed_draws(model(), samples.images.device(), place, kReplica);  // replays draw from it as well
  const auto both = [this, window = place.window_samples](const torch::Tensor& images,
                                                          const torch::Tensor& targets,
                                                          measure::SpanClock* clock) {
    return pass(model(), normalized(images), targets, window, &counter(), clock);
  };
  const torch::Tensor value = graphed_->run(samples.images, samples.targets, spans, both);
  graph_sets_up(graphed_->last_set_up());
  return loss_of(value, samples.images.size(0), place);
}

TorchStrategy::Loss Single::whole_step(Batch& batch, const StepContext& place,
                                       measure::SpanClock& spans) {
  const std::int64_t samples = batch.count();
  const auto step = [this, samples](const Samples& there, measure::SpanClock* clock) {
    return pass_and_update(normalized(there.images), there.targets, samples, clock);
  };
  Loss loss = loss_of(run_whole(*whole_, batch, place, spans, step), samples, place);
  loss.updated = true;
  return loss;
}

}  // namespace millrace::train
