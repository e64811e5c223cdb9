// Translates [output] and the chain to a plan.
#include "augment/plan/plan_setup.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "augment/plan/choices.h"
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

}  // namespace

std::shared_ptr<const Plan> make_plan(const Recipe& recipe, const std::vector<OpSpec>& chain,
                                      const Reader& reader) {
  const DatasetInfo& info = reader.info();
  OutputOptions output;
  output.dtype = dtype_of(recipe);
  if (normalize_of(recipe) == Normalize::device) {
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
  const auto named = static_cast<int>(recipe.integer("model.classes"));
  const int classes = reader.annotations() != nullptr || info.masks ? kUnmixedLabels
                      : named > 0                                   ? named
                                  : static_cast<int>(info.classes.size());
  if (!info.encoded)
    return std::make_shared<Plan>(chain, Source{info.size, info.channels}, output, options,
                                  classes);
  // Checks the first image on behalf of all; if on_error lets samples fail, the first one that
  // fits.
  Buffer bytes;
  pipeline::DecodeScratch decode;
  const auto most = static_cast<std::uint64_t>(recipe.integer("data.max_pixels"));
  const bool may_fail = pipeline::on_error_of(recipe) != OnError::fail;
  for (std::uint64_t i = 0;; ++i) {
    try {
      const Size size = decode.open(reader.read(i, bytes).bytes, most).size;
      return std::make_shared<Plan>(chain, Source{size, 3}, output, options, classes);
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
