// Compiles a chain into a Transform.

#include "augment/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "augment/plan/assemble.h"
#include "augment/plan/mask_warp.h"
#include "augment/plan/runner.h"
#include "base/clock.h"
#include "base/rng.h"
#include "millrace/limits.h"
#include "pipeline/targets/object_mixing.h"
#include "plugins/host/registry.h"

namespace millrace::augment {

namespace {

void check_side(Size size) {
  if (size.width <= kMaxImageSide && size.height <= kMaxImageSide) return;
  throw DataError(fmt::format("an image of {}x{}: sides of more than {} pixels are not resampled",
                              size.width, size.height, kMaxImageSide),
                  "cut it up or shrink it");
}

/// Returns whether images of different sizes get one output size.
bool has_fixed_output(const plugins::Unit& unit, millrace_call& call) {
  try {
    return output_of(unit, {2000, 1000}, call) == output_of(unit, {3000, 4000}, call);
  } catch (const Error&) {
    return false;
  }
}

/// Returns whether a unit, or one that it may choose, makes images whose pixels come from anywhere.
bool makes_new_images(const plugins::Unit& unit) {
  if (unit.table().filter != nullptr) return true;
  for (const auto& child : unit.children())
    if (makes_new_images(*child)) return true;
  return false;
}

/// Returns whether a unit, and each that it may choose, works on images of floats.
bool takes_floats(const plugins::Unit& unit) {
  const millrace_unit& table = unit.table();
  if (table.filter != nullptr) return false;
  if (table.pixel != nullptr && plugins::floats_of(*table.pixel) == nullptr) return false;
  return std::ranges::all_of(unit.children(),
                             [](const auto& child) { return takes_floats(*child); });
}

/// Throws UsageError if the plan cannot take images of this form.
void check_form(const Source& source) {
  const bool floats = source.depth != Depth::u8;
  if (floats ? source.channels >= 1 && source.channels <= kMaxChannels
             : source.channels == 1 || source.channels == 3)
    return;
  throw UsageError(
      fmt::format("images of {} channels are not supported", source.channels),
      floats ? fmt::format("at most {} channels are taken: choose some of them", kMaxChannels)
             : "set decode.depth=16 or decode.depth=float, which keep all channels");
}

/// Returns `output` after checking that mean and std fit the number of channels.
const OutputOptions& checked_output(const OutputOptions& output, const Source& source) {
  check_form(source);
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

SizeMismatch::~SizeMismatch() = default;

Plan::Plan(const std::vector<OpSpec>& chain, const Source& source, const OutputOptions& output,
           const PlanOptions& options, int classes)
    : store_(output.dtype, output.layout, source.channels, checked_output(output, source).mean,
             output.std),
      depth_(source.depth),
      options_(options),
      classes_(classes) {
  const bool floats = source.depth != Depth::u8;
  Size size = source.size;
  plugins::CallContext context;
  bool at_full_size = true;  // so far, every image has a size that depends on its own
  for (const OpSpec& spec : chain) {
    if (!spec.enabled) continue;
    Op op{base::op_id(spec.id), spec.id,
          std::make_unique<plugins::Unit>(plugins::augmentation(spec.op), spec.params, "", "",
                                          output.mean, output.std),
          picker_of(plugins::augmentation(spec.op))};
    if (op.unit->table().batch != nullptr) {
      add_group(plugins::group_of(op.unit->table()), op.name);
      mixers_.push_back(std::move(op));
      continue;
    }
    if (!mixers_.empty())
      throw UsageError(fmt::format("{} stands behind {}, which works on whole batches", spec.id,
                                   mixers_.back().name),
                       "put ops on batches at the end of the chain");
    if (floats && !takes_floats(*op.unit))
      throw UsageError(fmt::format("{} works on 8 bits, and decode.depth={}", spec.id,
                                   source.depth == Depth::u16 ? "16" : "float"),
                       fmt::format("leave it out, or set decode.depth=8; docs/reference/decode.md "
                                   "lists the ops that take floats"));
    try {
      size = output_of(*op.unit, size, context.call);
    } catch (const UsageError& error) {
      throw SizeMismatch(error.what(), error.hint());
    }
    // Two buffers take turns; ops that are folded need neither.
    const bool folds = op.unit->table().geometric != nullptr ||
                       (op.unit->table().pixel != nullptr && op.unit->table().pixel->levels);
    if (at_full_size && (!folds || (options_.resample == Resample::stepwise && !ops_.empty())))
      full_copies_ = 2;
    at_full_size = at_full_size && !has_fixed_output(*op.unit, context.call);
    ops_.push_back(std::move(op));
  }
  for (const Op& op : mixers_)
    if (op.picker == nullptr && classes_ != kUnmixedLabels && classes_ < 1)
      throw UsageError(
          fmt::format("{} mixes labels, and the number of classes is unknown", op.name),
          "set model.classes");
  spec_ = {size, source.channels, output.dtype, output.layout};
}

void Plan::add_group(std::int32_t group, const std::string& op) {
  if (group == MILLRACE_WHOLE_BATCH) {
    if (whole_batch_op_.empty()) whole_batch_op_ = op;
    group_ = MILLRACE_WHOLE_BATCH;
  }
  if (group_ == MILLRACE_WHOLE_BATCH) return;
  constexpr int kLargest = 1 << 16;  // beyond any batch; the product of two groups fits an int
  group_ = std::lcm(group_, group);
  if (group_ > kLargest)
    throw UsageError(fmt::format("{} works on groups of {}: together with the groups of earlier "
                                 "ops, that needs groups of {} samples, more than {}",
                                 op, group, group_, kLargest),
                     "leave one of the ops out");
}

const Plan& Plan::at(std::uint32_t epoch) const {
  if (stages_.empty()) return *this;
  const auto behind =
      std::ranges::upper_bound(stages_, epoch, {}, [](const Stage& stage) { return stage.epoch; });
  return *std::prev(behind)->plan;
}

std::unique_ptr<Transform::Scratch> Plan::make_scratch() const {
  return std::make_unique<PlanScratch>();
}

void Plan::run(const SampleKey& key, PixelSource& source, std::byte* out, Scratch& scratch) const {
  run(key, source, out, scratch, nullptr);
}

void Plan::run_tracked(const SampleKey& key, PixelSource& source, std::byte* out, Scratch& scratch,
                       Trail& trail) const {
  trail.warps.clear();
  trail.lost = !mixers_.empty();  // several images' pixels share a sample
  run(key, source, out, scratch, nullptr, &trail);
}

void Plan::move_mask(const Trail& trail, PixelSource& mask, std::uint8_t fill, std::uint8_t* out,
                     Scratch& scratch) const {
  static const std::string kName = "mask";
  static const Store kLevels(DType::u8, Layout::hwc, 1, {0}, {1});
  const SampleKey unused;  // the draws have been made
  Runner runner(unused, mask, 1, /*floats=*/false, options_, static_cast<PlanScratch&>(scratch),
                nullptr, nullptr);
  for (const millrace_warp& warp : trail.warps) runner.move(for_mask(warp, fill), kName);
  runner.finish({spec_.size, 1, DType::u8, Layout::hwc}, kLevels,
                reinterpret_cast<std::byte*>(out));
}

std::string Plan::untracked_op() const {
  for (const Op& op : ops_)
    if (makes_new_images(*op.unit)) return op.name;
  for (const Op& op : mixers_)
    if (plugins::parts_of(*op.unit->table().batch) == nullptr) return op.name;
  return {};
}

std::string Plan::blending_op() const {
  for (const Op& op : mixers_)
    if (plugins::changes_samples(*op.unit->table().batch)) return op.name;
  return {};
}

std::string Plan::pasting_op() const {
  for (const Op& op : mixers_)
    if (op.picker != nullptr) return op.name;
  return {};
}

void Plan::run(const SampleKey& key, PixelSource& source, std::byte* out, Scratch& scratch,
               Trace* trace, Trail* trail) const {
  const Size size = source.size();
  check_side(size);
  Runner runner(key, source, spec_.channels, depth_ != Depth::u8, options_,
                static_cast<PlanScratch&>(scratch), trace, trail);
  try {
    for (const Op& op : ops_) runner.apply(*op.unit, op.id, op.name);
    if (runner.output() == spec_.size) return runner.finish(spec_, store_, out);
  } catch (const UsageError& error) {
    // The chain fits the size that it was compiled for, so this image is at fault.
    throw DataError(error.what(), error.hint());
  }
  throw UsageError(
      fmt::format("an image of {}x{} leads to a sample of {}x{}, but the batch holds samples of "
                  "{}x{}",
                  size.width, size.height, runner.output().width, runner.output().height,
                  spec_.size.width, spec_.size.height),
      "end the chain in an op of fixed size, for example augment+=resize{size=[32,32]} or "
      "augment+=random_crop{size=32,pad_if_needed=true}");
}

void Plan::mix(const SampleKey& key, const Neighbours& batch, Scratch& scratch) const {
  mix(key, batch, scratch, nullptr, 0);
}

void Plan::mix(const SampleKey& key, const Neighbours& batch, Scratch& scratch, Trace* trace,
               std::size_t traced) const {
  auto& memory = static_cast<PlanScratch&>(scratch);
  for (const Op& op : mixers_) {
    const std::int32_t declared = plugins::group_of(op.unit->table());
    const bool whole = declared == MILLRACE_WHOLE_BATCH;
    const std::size_t size =
        whole ? std::max<std::size_t>(batch.count, 2) : static_cast<std::size_t>(declared);
    memory.parts.clear();
    if (op.picker != nullptr && batch.observer == nullptr) continue;  // there are no objects
    if (op.picker != nullptr) memory.picked.assign(batch.observer->objects().classes.size(), 0);
    for (std::size_t first = 0; first + size <= batch.count; first += size) {
      list_group(batch, first, size, memory);
      if (memory.group.size() < (whole ? 2 : size)) continue;
      const bool is_traced = trace != nullptr && traced >= first && traced < first + size;
      mix_group(op, {key.seed, key.epoch, key.sample + first}, batch.observer, memory,
                is_traced ? trace : nullptr);
    }
    if (op.picker != nullptr)
      batch.observer->pasted(memory.parts, memory.picked);
    else if (batch.observer != nullptr)
      batch.observer->mixed(memory.parts);
  }
}

void Plan::list_group(const Neighbours& batch, std::size_t first, std::size_t count,
                      PlanScratch& scratch) const {
  const std::size_t bytes = spec_.bytes();
  const auto classes = static_cast<std::size_t>(soft_classes());
  const auto area =
      static_cast<std::size_t>(spec_.size.width) * static_cast<std::size_t>(spec_.size.height);
  scratch.group_places.clear();
  scratch.group.clear();
  scratch.group_labels.clear();
  scratch.group_masks.clear();
  for (std::size_t place = first; place < first + count; ++place) {
    if (std::binary_search(batch.missing.begin(), batch.missing.end(),
                           static_cast<std::int64_t>(place)))
      continue;
    scratch.group_places.push_back(static_cast<std::int32_t>(place));
    scratch.group.push_back(batch.samples + place * bytes);
    scratch.group_labels.push_back(batch.labels + place * classes);
    if (batch.masks != nullptr) scratch.group_masks.push_back(batch.masks + place * area);
  }
}

millrace_sample Plan::form() const {
  return {sizeof(millrace_sample),
          spec_.size,
          spec_.channels,
          static_cast<std::int32_t>(spec_.dtype),
          static_cast<std::int32_t>(spec_.layout),
          soft_classes()};
}

std::span<millrace_part> Plan::add_parts(const Op& op, const SampleKey& key,
                                         PlanScratch& scratch) const {
  const std::size_t begin = scratch.parts.size(), samples = scratch.group.size();
  scratch.parts.resize(begin + MILLRACE_MOST_PARTS * samples);
  scratch.context.call.rng = base::stream(key, op.id);
  const std::size_t count = plugins::write_parts(
      *op.unit, form(), samples, std::span(scratch.parts).subspan(begin), scratch.context.call);
  scratch.parts.resize(begin + count);
  return std::span(scratch.parts).subspan(begin);
}

void Plan::paste_group(const Op& op, const SampleKey& key, const Objects& objects,
                       PlanScratch& scratch) const {
  scratch.context.call.rng = base::stream(key, op.id);
  Call call(&scratch.context.call);
  const std::uint8_t* cutouts[2];
  for (std::size_t to = 0; to < 2; ++to) {
    const auto from = static_cast<std::size_t>(scratch.group_places[1 - to]);
    const auto begin = static_cast<std::size_t>(objects.offsets[from]);
    const auto count = static_cast<std::size_t>(objects.offsets[from + 1]) - begin;
    op.picker(op.unit->self(), to, std::span(scratch.picked).subspan(begin, count), call);
    cutouts[to] = pipeline::cut_out(objects, from, scratch.picked, scratch.pixels[to]);
  }
  paste(spec_, scratch.group[0], scratch.group[1], cutouts[0], cutouts[1]);
  if (scratch.group_masks.empty()) return;
  paste({spec_.size, 1, DType::u8, Layout::hwc}, scratch.group_masks[0], scratch.group_masks[1],
        cutouts[0], cutouts[1]);
}

void Plan::mix_group(const Op& op, const SampleKey& key, const MixObserver* observer,
                     PlanScratch& scratch, Trace* trace) const {
  const millrace_unit& unit = op.unit->table();
  millrace_call& call = scratch.context.call;
  const std::size_t count = scratch.group.size();
  std::span<millrace_part> parts;
  const std::int64_t begin = trace == nullptr ? 0 : base::Clock::steady_ns();
  if (plugins::changes_samples(*unit.batch)) {
    call.rng = base::stream(key, op.id);
    {
      const DrawListener listener(trace, op.name, call);
      const millrace_sample sample = form();
      plugins::checked_call(unit, call, [&] {
        return plugins::mix_group(*op.unit, sample, scratch.group.data(),
                                  scratch.group_labels.data(), count, call);
      });
    }
    if (observer != nullptr) parts = add_parts(op, key, scratch);
  } else if (op.picker != nullptr) {
    const DrawListener listener(trace, op.name, call);
    parts = add_parts(op, key, scratch);
    paste_group(op, key, observer->objects(), scratch);
  } else {
    const DrawListener listener(trace, op.name, call);
    parts = add_parts(op, key, scratch);
    assemble(parts, spec_, scratch.group, scratch.pixels[0]);
    assemble_labels(parts, spec_.size, static_cast<std::size_t>(soft_classes()),
                    scratch.group_labels, scratch.pixels[1]);
    assemble(parts, {spec_.size, 1, DType::u8, Layout::hwc}, scratch.group_masks,
             scratch.pixels[0]);
  }
  for (millrace_part& part : parts) {
    part.to = scratch.group_places[static_cast<std::size_t>(part.to)];
    part.from = scratch.group_places[static_cast<std::size_t>(part.from)];
  }
  if (trace == nullptr) return;
  // All samples of the group share the time.
  const std::int64_t share = (base::Clock::steady_ns() - begin) / static_cast<std::int64_t>(count);
  const bool whole = plugins::group_of(unit) == MILLRACE_WHOLE_BATCH;
  trace->steps.push_back({"mix",
                          {op.name},
                          whole        ? "with the whole batch"
                          : count == 2 ? "with its neighbour"
                                       : fmt::format("in its group of {}", count),
                          share});
}

}  // namespace millrace::augment

namespace millrace {

std::shared_ptr<const Transform> compile_plan(const std::vector<OpSpec>& chain,
                                              const Source& source, const OutputOptions& output,
                                              const PlanOptions& options, int classes) {
  return std::make_shared<augment::Plan>(chain, source, output, options, classes);
}

}  // namespace millrace
