#include "augment/plan.h"

#include <fmt/format.h>

#include "augment/fold.h"
#include "augment/resample.h"
#include "pipeline/buffer.h"
#include "pipeline/error.h"
#include "pipeline/units/registry.h"

namespace millrace {
namespace {

/// Pixels between two passes; two buffers that take turns.
struct PlanScratch final : Transform::Scratch {
  Buffer pixels[2];
  CallContext call;
};

Size output_of(const Unit& unit, Size input, millrace_call& call) {
  const millrace_geometric& functions = *unit.table().geometric;
  Size output = input;
  if (functions.output != nullptr)
    checked_call(unit.table(), call,
                 [&] { return functions.output(unit.self(), input, &output, &call); });
  return output;
}

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
  CallContext context;
  for (const OpSpec& spec : chain) {
    if (!spec.enabled) continue;
    ops_.push_back({op_id(spec.id), std::make_unique<Unit>(augmentation(spec.op), spec.params)});
    size = output_of(*ops_.back().unit, size, context.call);
  }
  spec_ = {size, source.channels, output.dtype, output.layout};
}

std::unique_ptr<Transform::Scratch> Plan::make_scratch() const {
  return std::make_unique<PlanScratch>();
}

void Plan::run(const SampleKey& key, PixelSource& source, std::byte* out, Scratch& scratch) const {
  const Size input = source.size();
  const ImageView image = source.pixels({0, 0, input.width, input.height}, 0);
  if (image.width > kMostSide || image.height > kMostSide)
    throw UsageError(
        fmt::format("an image of {}x{}: sides of more than {} pixels are not resampled",
                    image.width, image.height, kMostSide));
  auto& [buffers, context] = static_cast<PlanScratch&>(scratch);
  Pass pass(image);
  int passes = 0;
  const auto flush = [&] {  // what is folded so far becomes pixels, and the next pass's source
    const std::size_t bytes = static_cast<std::size_t>(pass.output.width) *
                              static_cast<std::size_t>(pass.output.height) *
                              static_cast<std::size_t>(pass.source.channels);
    std::uint8_t* pixels = buffers[passes++ % 2].reserve(bytes);
    millrace::resample(pass, pixels);
    pass = Pass(interleaved(pixels, pass.output, pass.source.channels));
  };
  for (const Op& op : ops_) {
    output_of(*op.unit, pass.output, context.call);  // throws where this image is too small
    context.call.rng = stream(key, op.id);
    Warp warp;
    checked_call(op.unit->table(), context.call, [&] {
      return op.unit->table().geometric->warp(op.unit->self(), pass.output, &warp, &context.call);
    });
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
  millrace::resample(pass, store_, out);
}

}  // namespace millrace
