#include "augment/plan.h"

#include <fmt/format.h>

#include "augment/runner.h"
#include "pipeline/error.h"
#include "pipeline/units/registry.h"

namespace millrace {
namespace {

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

/// The same, held against what can be resampled.
Size checked_output_of(const Unit& unit, Size input, millrace_call& call) {
  const Size output = output_of(unit, input, call);
  if (output.width < 1 || output.height < 1 || output.width > kMostSide ||
      output.height > kMostSide)
    throw UsageError(
        fmt::format("{}: an image of {}x{} would become one of {}x{}", unit.table().name,
                    input.width, input.height, output.width, output.height),
        fmt::format("sides may be 1 to {} pixels", kMostSide));
  return output;
}

}  // namespace

Plan::Plan(const std::vector<OpSpec>& chain, const Source& source, const OutputOptions& output,
           const PlanOptions& options, int classes)
    : store_(output.dtype, output.layout, source.channels, checked_output(output, source).mean,
             output.std),
      options_(options),
      classes_(classes) {
  Size size = source.size;
  CallContext context;
  for (const OpSpec& spec : chain) {
    if (!spec.enabled) continue;
    Op op{op_id(spec.id), spec.id,
          std::make_unique<Unit>(augmentation(spec.op), spec.params, "", "", output.mean,
                                 output.std)};
    if (op.unit->table().batch != nullptr) {
      mixers_.push_back(std::move(op));
      continue;
    }
    if (!mixers_.empty())
      throw UsageError(fmt::format("{} stands behind {}, which works on whole batches", spec.id,
                                   mixers_.back().name),
                       "put ops on batches at the end of the chain");
    size = checked_output_of(*op.unit, size, context.call);
    ops_.push_back(std::move(op));
  }
  if (!mixers_.empty() && classes_ < 1)
    throw UsageError(fmt::format("{} mixes labels, and nothing says how many classes there are",
                                 mixers_.front().name),
                     "set model.classes");
  spec_ = {size, source.channels, output.dtype, output.layout};
}

std::unique_ptr<Transform::Scratch> Plan::make_scratch() const {
  return std::make_unique<PlanScratch>();
}

void Plan::run(const SampleKey& key, PixelSource& source, std::byte* out, Scratch& scratch) const {
  run(key, source, out, scratch, nullptr);
}

void Plan::run(const SampleKey& key, PixelSource& source, std::byte* out, Scratch& scratch,
               Trace* trace) const {
  const Size size = source.size();
  if (size.width > kMostSide || size.height > kMostSide)
    throw UsageError(
        fmt::format("an image of {}x{}: sides of more than {} pixels are not "
                    "resampled",
                    size.width, size.height, kMostSide));
  Runner runner(key, source, spec_.channels, options_, static_cast<PlanScratch&>(scratch), trace);
  for (const Op& op : ops_) runner.apply(*op.unit, op.id, op.name);
  runner.finish(spec_, store_, out);
}

void Plan::mix(const SampleKey& key, std::byte* first, std::byte* second, float* first_labels,
               float* second_labels, Scratch& scratch) const {
  millrace_call& call = static_cast<PlanScratch&>(scratch).context.call;
  const millrace_sample sample{sizeof sample,
                               spec_.size,
                               spec_.channels,
                               static_cast<std::int32_t>(spec_.dtype),
                               static_cast<std::int32_t>(spec_.layout),
                               classes_};
  for (const Op& op : mixers_) {
    call.rng = stream(key, op.id);
    checked_call(op.unit->table(), call, [&] {
      return op.unit->table().batch->pair(op.unit->self(), &sample, first, second, first_labels,
                                          second_labels, &call);
    });
  }
}

}  // namespace millrace
