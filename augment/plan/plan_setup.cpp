// Translates [output] and the chain to a plan.
#include "augment/plan/plan_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "augment/plan/choices.h"
#include "augment/plan/size_stages.h"
#include "millrace/error.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/setup/choices.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"

namespace millrace::augment {
namespace {

/// Rejects chains that output.normalize=device cannot serve.
void check_levels(const Recipe& recipe, const std::vector<OpSpec>& chain) {
  if (const DType dtype = dtype_of(recipe); dtype != DType::f32)
    throw UsageError(
        fmt::format(
            "output.normalize=device with output.dtype={}: the device converts levels to f32",
            name_of(dtype)),
        "leave output.dtype at f32, or set output.normalize=loader");
  for (const OpSpec& spec : chain) {
    // CutMix and parts alone only move pixels; ops that blend them would have their results rounded
    // to levels.
    const millrace_batch* const batch = plugins::augmentation(spec.op).batch;
    if (!spec.enabled || batch == nullptr || spec.op == "cutmix" ||
        !plugins::changes_samples(*batch))
      continue;
    throw UsageError(
        fmt::format("output.normalize=device with {}: mixed values would be rounded to levels",
                    spec.id),
        "set output.normalize=loader, or leave the op out");
  }
}

using Compile = std::function<std::shared_ptr<const Plan>(
    const Source& source, const OutputOptions& output, const PlanOptions& options, int classes)>;

/// Compiles for the images of `reader`.
std::shared_ptr<const Plan> compile_for(const Recipe& recipe, const std::vector<OpSpec>& chain,
                                        const Reader& reader, const Compile& compile) {
  const DatasetInfo& info = reader.info();
  OutputOptions output;
  output.dtype = dtype_of(recipe);
  if (normalize_of(recipe) == Normalize::device) {
    if (recipe.text("decode.depth") != "8")
      throw UsageError(fmt::format("output.normalize=device with decode.depth={}: the device "
                                   "converts 8 bits",
                                   recipe.text("decode.depth")),
                       "set output.normalize=loader");
    check_levels(recipe, chain);
    output.dtype = DType::u8;
  }
  output.layout = layout_of(recipe);
  output.mean = recipe.numbers("output.mean");
  output.std = recipe.numbers("output.std");
  PlanOptions options;
  options.resample = resample_of(recipe);
  options.region = recipe.text("decode.region") == "on";
  options.dct = recipe.text("decode.scale") == "dct";
  const Depth depth = pipeline::depth_of(recipe);
  const auto named = static_cast<int>(recipe.integer("model.classes"));
  const int classes = reader.annotations() != nullptr || info.masks ? kUnmixedLabels
                      : named > 0                                   ? named
                                  : static_cast<int>(info.classes.size());
  if (!info.encoded)
    return compile(Source{info.size, info.channels, depth}, output, options, classes);
  // Checks the first image on behalf of all; if on_error lets samples fail, the first one that
  // fits.
  Buffer bytes;
  pipeline::DecodeScratch decode;
  const auto most = static_cast<std::uint64_t>(recipe.integer("data.max_pixels"));
  const bool may_fail = pipeline::on_error_of(recipe) != OnError::fail;
  for (std::uint64_t i = 0;; ++i) {
    try {
      const pipeline::EncodedImage& image = decode.open(reader.read(i, bytes).bytes, most);
      const int channels = depth == Depth::u8 ? 3 : image.bands;
      return compile(Source{image.size, channels, depth}, output, options, classes);
    } catch (const SizeMismatch& error) {
      if (may_fail && i + 1 < info.count) continue;
      const std::string what = reader.name(i) + ": " + error.what();
      if (may_fail) throw UsageError(what, error.hint());  // no image fits
      throw DataError(what, error.hint());
    } catch (const DataError& error) {
      if (may_fail && i + 1 < info.count) continue;
      throw DataError(reader.name(i) + ": " + error.what(),
                      may_fail ? "no image can be decoded: is this the right folder?"
                               : "repair or remove it, or skip such samples: "
                                 "loader.on_error=skip");
    }
  }
}

}  // namespace

std::shared_ptr<const Plan> make_plan(const Recipe& recipe, const std::vector<OpSpec>& chain,
                                      const Reader& reader) {
  return compile_for(
      recipe, chain, reader,
      [&](const Source& source, const OutputOptions& output, const PlanOptions& options,
          int classes) { return std::make_shared<Plan>(chain, source, output, options, classes); });
}

std::shared_ptr<const Plan> make_training_plan(const Recipe& recipe, const Reader& reader) {
  const std::vector<SizeStage> stages = size_stages(recipe);
  if (stages.empty()) return make_plan(recipe, recipe.augment(), reader);
  const SizeStage& largest = *std::ranges::max_element(stages, {}, &SizeStage::side);
  return compile_for(
      recipe, largest.chain, reader,
      [&](const Source& source, const OutputOptions& output, const PlanOptions& options,
          int classes) {
        const auto plan = std::make_shared<Plan>(largest.chain, source, output, options, classes);
        for (const SizeStage& stage : stages) {
          auto own = std::make_shared<Plan>(stage.chain, source, output, options, classes);
          if (const Size size = own->output().size; size != Size{stage.side, stage.side})
            throw UsageError(
                fmt::format("output.sizes: with size={0} samples have {1}x{2}, and not {0}x{0}",
                            stage.side, size.width, size.height),
                "let the op with that size be the last one that changes it");
          plan->add_stage(stage.epoch, std::move(own));
        }
        return plan;
      });
}

void require_divisible(const Recipe& recipe, int world) {
  if (world < 2) return;
  for (const OpSpec& spec : recipe.augment()) {
    if (!spec.enabled) continue;
    const millrace_unit& unit = plugins::augmentation(spec.op);
    if (unit.batch == nullptr || plugins::group_of(unit) != MILLRACE_WHOLE_BATCH) continue;
    throw UsageError(
        fmt::format("{} works on whole batches, which {} ranks would divide", spec.id, world),
        fmt::format("train with one rank, or leave it out: augment.{}.enabled=false", spec.id));
  }
}

}  // namespace millrace::augment
