// Runs steps on one device, eagerly or as graphs.
#include "strategies/torch/single.h"

#include <utility>
#include <vector>

namespace millrace::train {
namespace {

constexpr int kReplica = 0;

}  // namespace

Single::Single(const StrategyOptions& options, std::unique_ptr<DeviceStreams> streams,
               std::unique_ptr<DeviceGraph> graph)
    : TorchStrategy(options, std::move(streams)) {
  if (options.graph_samples == 0) return;
  if (graph == nullptr) graph = cuda().value().make_graph();
  const bool whole = options.recipe.text("train.cuda_graphs") == "step";
  graphs_.emplace(std::move(graph), *this->streams(), torch_device(), options.graph_samples,
                  whole ? std::vector<torch::Tensor>{} : model().parameters());
}

bool Single::could_replay(const Batch& batch, const StepContext& place) {
  if (!graphs_ || batch.count() != place.window_samples) return false;
  return (!graphs_->has_whole_step() || is_settled()) && graphs_->takes(batch);
}

TorchStrategy::Loss Single::gradients(Batch& batch, const StepContext& place,
                                      measure::SpanClock& spans) {
  if (batch.count() == 0) return {};
  spans.enter(measure::Span::h2d);
  if (could_replay(batch, place)) return graphed_step(batch, place, spans);
  const Samples samples = take(batch);
  // On the CPU the first layer's gradient is the last op to read the pixels.
  return learn(model(), samples.images, samples.targets, place, kReplica, &counter(), &spans);
}

TorchStrategy::Loss Single::graphed_step(Batch& batch, const StepContext& place,
                                         measure::SpanClock& spans) {
  const std::int64_t samples = batch.count();
  const bool whole = graphs_->has_whole_step();
  const auto step = [this, samples, whole](const Samples& there, measure::SpanClock* clock) {
    const torch::Tensor images = normalized(there.images);
    return whole ? pass_and_update(images, there.targets, samples, clock)
                 : pass(model(), images, there.targets, samples, &counter(), clock);
  };
  Loss loss = loss_of(run_graphed(*graphs_, batch, place, spans, step), samples, place);
  loss.updated = whole;
  return loss;
}

}  // namespace millrace::train
