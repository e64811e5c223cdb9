#include "strategies/single.h"

namespace millrace {

TorchStrategy::Loss Single::gradients(Batch& batch, const StepPlace& place, SpanClock& spans) {
  if (batch.count() == 0) return {};
  spans.enter(Span::h2d);
  const Samples samples = take(batch);
  // On the CPU the first layer's gradient is the last to read the pixels.
  return learn(model(), samples.images, samples.targets, place, /*replica=*/0, &spans);
}

}  // namespace millrace
