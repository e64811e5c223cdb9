#include "augment/plan.h"

#include <fmt/format.h>

#include "augment/fold.h"
#include "augment/resample.h"
#include "pipeline/buffer.h"
#include "pipeline/error.h"

namespace millrace {
namespace {

/// Pixels between two passes; two buffers that take turns.
struct PlanScratch final : Transform::Scratch {
  Buffer pixels[2];
  ResampleScratch resample;
};

/// Positions are fixed point with at least 12 bits of fraction in 31 bits.
constexpr int kMostSide = 65535;

/// Parameters of [output] that don't fit the number of channels.
const OutputOptions& checked_output(const OutputOptions& output, const Source& source) {
  const auto count = static_cast<std::size_t>(source.channels);
  for (const auto* values : {&output.mean, &output.std})
    if (values->size() != 1 && values->size() != count)
      throw UsageError(fmt::format("output.{} has {} numbers for images of {} channel{}",
                                   values == &output.mean ? "mean" : "std", values->size(), count,
                                   count == 1 ? "" : "s"),
                       "give one number, or one a channel");
  return output;
}

}  // namespace

Plan::Plan(const std::vector<OpSpec>& chain, const Source& source, const OutputOptions& output,
           Resample resample)
    : store_(output.dtype, output.layout, source.channels, checked_output(output, source).mean,
             output.std),
      resample_(resample) {
  Size size = source.size;
  for (const OpSpec& spec : chain) {
    if (!spec.enabled) continue;
    ops_.push_back({op_id(spec.id), make_op(spec)});
    size = ops_.back().op->output(size);
  }
  spec_ = {size, source.channels, output.dtype, output.layout};
}

std::unique_ptr<Transform::Scratch> Plan::make_scratch() const {
  return std::make_unique<PlanScratch>();
}

void Plan::run(const SampleKey& key, const ImageView& image, std::byte* out,
               Scratch& scratch) const {
  if (image.width > kMostSide || image.height > kMostSide)
    throw UsageError(
        fmt::format("an image of {}x{}: sides of more than {} pixels are not resampled",
                    image.width, image.height, kMostSide));
  auto& buffers = static_cast<PlanScratch&>(scratch).pixels;
  ResampleScratch& working = static_cast<PlanScratch&>(scratch).resample;
  FoldedPass pass(image);
  int passes = 0;
  const auto flush = [&] {  // what is folded so far becomes pixels, and the next pass's source
    const std::size_t bytes = static_cast<std::size_t>(pass.output.width) *
                              static_cast<std::size_t>(pass.output.height) *
                              static_cast<std::size_t>(pass.source.channels);
    std::uint8_t* pixels = buffers[passes++ % 2].reserve(bytes);
    millrace::resample(pass, pixels, working);
    pass = FoldedPass(interleaved(pixels, pass.output, pass.source.channels));
  };
  for (const Op& op : ops_) {
    op.op->output(pass.output);  // throws where this image is too small
    Draw draw(key, op.id);
    const Warp warp = op.op->plan(pass.output, draw);
    const bool alone = resample_ == Resample::stepwise && &op != ops_.data();
    if (alone) flush();
    if (!pass.add(warp)) {
      flush();
      pass.add(warp);
    }
  }
  if (pass.output != spec_.size)
    throw UsageError(
        fmt::format("an image of {}x{} leads to a sample of {}x{}, but the batch holds "
                    "samples of {}x{}",
                    image.width, image.height, pass.output.width, pass.output.height,
                    spec_.size.width, spec_.size.height),
        "end the chain in an op of fixed size, for example "
        "augment+=random_crop{size=32,pad_if_needed=true}");
  millrace::resample(pass, store_, out, working);
}

}  // namespace millrace
