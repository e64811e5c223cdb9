#include "strategies/single.h"

#include "strategies/batch_tensors.h"

namespace millrace {

TorchStrategy::Loss Single::gradients(Batch& batch, const StepPlace& place, SpanClock& spans) {
  if (batch.count() == 0) return {};
  spans.enter(Span::h2d);
  const Slice all = whole(batch);
  const torch::Tensor images = to_device(images_of(batch, all, options()));
  const torch::Tensor targets = to_device(targets_of(batch, all));
  if (!torch_device().is_cpu()) batch.release();
  // On the CPU the first layer's gradient is the last to read the pixels.
  return learn(model(), images, targets, place, /*replica=*/0, &spans);
}

}  // namespace millrace
