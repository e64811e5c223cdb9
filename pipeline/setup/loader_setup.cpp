// Translates [loader] to the options of a loader.
#include "pipeline/setup/loader_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/available_cores.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/url.h"
#include "pipeline/setup/choices.h"
#include "pipeline/targets/flip_pairs.h"

namespace millrace::pipeline {
namespace {

/// Reads a file of one number per line.
std::shared_ptr<const std::vector<double>> read_weights(const std::string& file) {
  auto weights = std::make_shared<std::vector<double>>();
  read_lines("sampler.weights", file, [&](const std::string& line, std::uint64_t number) {
    double weight = 0;
    const char* end = line.data() + line.size();
    const auto [stop, status] = std::from_chars(line.data(), end, weight);
    if (status != std::errc() || stop != end)
      throw UsageError(fmt::format("sampler.weights={}: line {}: '{}' is not a number", file,
                                   number, base::printable(line)),
                       "give one number per line");
    weights->push_back(weight);
  });
  return weights;
}

/// Throws UsageError for a key of [sampler] that the kind leaves without effect.
void check_kind(const Recipe& recipe) {
  const std::string kind = recipe.text("sampler.kind");
  const auto require = [&](const char* key, const char* wanted, bool set) {
    if (set && kind != wanted)
      throw UsageError(fmt::format("{} has no effect with sampler.kind={}", key, kind),
                       fmt::format("set sampler.kind={}, or leave it out", wanted));
  };
  require("sampler.weights", "weighted", !recipe.text("sampler.weights").empty());
  require("sampler.replacement", "weighted", !recipe.boolean("sampler.replacement"));
  const SamplerOptions defaults;
  require("sampler.per_class", "balanced",
          recipe.integer("sampler.per_class") != defaults.per_class);
  require("sampler.repeats", "repeat", recipe.integer("sampler.repeats") != defaults.repeats);
  const std::string shuffle = recipe.text("loader.shuffle");
  if (kind == "balanced" || kind == "weighted" || (kind == "sequential" && shuffle != "none"))
    require("loader.shuffle", "shuffle", shuffle != "global");
}

SamplerOptions sampler_options(const Recipe& recipe) {
  check_kind(recipe);
  SamplerOptions options;
  options.kind = sampler_kind_of(recipe);
  if (const std::string file = recipe.text("sampler.weights"); !file.empty())
    options.weights = read_weights(file);
  options.replacement = recipe.boolean("sampler.replacement");
  options.per_class = static_cast<int>(recipe.integer("sampler.per_class"));
  options.repeats = static_cast<int>(recipe.integer("sampler.repeats"));
  options.samples = static_cast<std::uint64_t>(recipe.integer("sampler.samples"));
  return options;
}

TargetOptions target_options(const Recipe& recipe) {
  TargetOptions options;
  options.format = box_format_of(recipe);
  options.relative = recipe.boolean("targets.relative");
  options.min_area = recipe.number("targets.min_area");
  options.min_visibility = recipe.number("targets.min_visibility");
  options.flip_pairs = parse_flip_pairs(recipe.text("targets.flip_pairs"));
  options.mask_fill = static_cast<std::uint8_t>(recipe.integer("targets.mask_fill"));
  return options;
}

/// Returns the options of a loader that takes each sample once.
LoaderOptions plain_options(const Recipe& recipe, std::shared_ptr<StorageModel> storage, int rank,
                            int world) {
  LoaderOptions options;
  options.rank = rank;
  options.world = world;
  check_mode(recipe);
  options.mode = loader_mode_of(recipe);
  options.workers = first_workers(recipe);
  options.batch = global_batch(recipe, world);
  options.prefetch = static_cast<int>(recipe.integer("loader.prefetch"));
  options.shuffle = shuffle_of(recipe);
  options.drop_last = recipe.boolean("loader.drop_last");
  options.on_error = on_error_of(recipe);
  options.grain = static_cast<int>(recipe.integer("loader.grain"));
  options.seed = static_cast<std::uint64_t>(recipe.integer("seed"));
  options.max_pixels = static_cast<std::uint64_t>(recipe.integer("data.max_pixels"));
  options.max_bytes = static_cast<std::uint64_t>(recipe.integer("loader.max_bytes"));
  options.only_libjpeg = recipe.text("decode.jpeg") == "libjpeg";
  constexpr int kIoThreads = 4;
  options.io_threads = static_cast<int>(recipe.integer("loader.io_threads"));
  if (options.io_threads < 0)
    options.io_threads =
        storage != nullptr || cache_of(recipe) == Cache::cold || is_remote(recipe.text("data.path"))
            ? kIoThreads
            : 0;
  if (options.workers == 0) options.io_threads = 0;
  options.targets = target_options(recipe);
  options.storage = std::move(storage);
  return options;
}

}  // namespace

Shuffle shuffle_of(const Recipe& recipe) {
  const Shuffle shuffle = Shuffle::parse(recipe.text("loader.shuffle"));
  if (recipe.text("sampler.kind") == "sequential") return {Shuffle::Kind::none, 0};
  return shuffle;
}

bool has_auto_workers(const Recipe& recipe) {
  return std::holds_alternative<std::string>(recipe.at("loader.workers"));
}

int first_workers(const Recipe& recipe) {
  if (!has_auto_workers(recipe)) return static_cast<int>(recipe.integer("loader.workers"));
  return std::max(1, base::available_cores() / 2);
}

std::int64_t global_batch(const Recipe& recipe, int world) {
  const std::int64_t per_rank = recipe.integer("loader.batch_per_rank");
  return per_rank > 0 ? per_rank * world : recipe.integer("loader.batch");
}

LoaderOptions loader_options(const Recipe& recipe, std::shared_ptr<StorageModel> storage, int rank,
                             int world) {
  LoaderOptions options = plain_options(recipe, std::move(storage), rank, world);
  options.sampler = sampler_options(recipe);
  return options;
}

void check_mode(const Recipe& recipe) {
  if (loader_mode_of(recipe) == LoaderMode::normal) return;
  const auto refuse = [&](const std::string& what) {
    throw UsageError(
        fmt::format("loader.mode={} with {}: nothing is read", recipe.text("loader.mode"), what),
        fmt::format("leave out {}, or use loader.mode=normal", what));
  };
  if (cache_of(recipe) != Cache::os) refuse("data.cache=" + recipe.text("data.cache"));
  for (const char* key : {"data.storage.bandwidth", "data.storage.latency", "data.storage.iops"})
    if (recipe.number(key) > 0) refuse(key);
}

LoaderOptions eval_loader_options(const Recipe& recipe, const Reader& reader,
                                  std::shared_ptr<StorageModel> storage, int rank, int world) {
  LoaderOptions options = plain_options(recipe, std::move(storage), rank, world);
  options.batch =
      std::min(recipe.integer("eval.batch"), static_cast<std::int64_t>(reader.info().count));
  // Another sample in place of a failed one would count twice.
  if (options.on_error == OnError::replace) options.on_error = OnError::skip;
  options.mode = LoaderMode::normal;  // accuracy is of the data, in any mode of training
  options.shuffle = {Shuffle::Kind::none, 0};
  options.drop_last = false;
  options.epochs = 1;
  options.first_batch = 0;
  return options;
}

}  // namespace millrace::pipeline
