// Forward and backward pass on one device, eager or as a graph.
#include "strategies/torch/single.h"

#include <utility>

namespace millrace::train {

Single::Single(const StrategyOptions& options, std::unique_ptr<DeviceStreams> streams,
               std::unique_ptr<DeviceGraph> graph)
    : TorchStrategy(options, std::move(streams)) {
  if (options.graph_samples == 0) return;
  if (graph == nullptr) graph = cuda().value().make_graph();
  graphed_.emplace(std::move(graph), *this->streams(), model().parameters(), options.graph_samples);
}

TorchStrategy::Loss Single::gradients(Batch& batch, const StepContext& place,
                                      pipeline::SpanClock& spans) {
  if (batch.count() == 0) return {};
  spans.enter(pipeline::Span::h2d);
  constexpr int kReplica = 0;
  if (!graphed_ || batch.count() != place.window_samples) {
    const Samples samples = take(batch);
    // On the CPU the first layer's gradient is the last op to read the pixels.
    return learn(model(), samples.images, samples.targets, place, kReplica, &spans);
  }
  const Samples samples = send(batch);
  seed_draws(model(), samples.images.device(), place, kReplica);  // replays draw from it as well
  const auto both = [this, window = place.window_samples](const torch::Tensor& images,
                                                          const torch::Tensor& targets,
                                                          pipeline::SpanClock* clock) {
    return pass(model(), normalized(images), targets, window, clock);
  };
  return loss_of(graphed_->run(samples.images, samples.targets, spans, both),
                 samples.images.size(0), place);
}

}  // namespace millrace::train
