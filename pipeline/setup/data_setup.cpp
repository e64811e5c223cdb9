// Translates [data] to the options of a reader.
#include "pipeline/setup/data_setup.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

#include "millrace/error.h"
#include "millrace/loader.h"
#include "pipeline/readers/subset.h"
#include "pipeline/readers/tar_members.h"
#include "pipeline/readers/url.h"
#include "pipeline/setup/choices.h"
#include "pipeline/setup/loader_setup.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"

namespace millrace::pipeline {
namespace {

/// Returns the kind of `millrace data make` whose sets `reader` opens, as they are or packed.
const char* generated_for(const std::string& reader) {
  return reader == "idx"                        ? "digits"
         : reader == "cifar"                    ? "objects"
         : reader == "coco" || reader == "yolo" ? "boxes"
                                                : "photos";
}

/// Returns how many samples lie at most between two that a loader needs at about the same time.
std::uint64_t reach_of(const Recipe& recipe) {
  const auto kind = sampler_kind_of(recipe);
  if (kind == SamplerOptions::Kind::weighted || kind == SamplerOptions::Kind::balanced)
    return std::numeric_limits<std::uint64_t>::max();
  const Shuffle shuffle = shuffle_of(recipe);
  // Neighbouring windows are read at the same time where one ends.
  switch (shuffle.kind) {
    case Shuffle::Kind::global:
      return std::numeric_limits<std::uint64_t>::max();
    case Shuffle::Kind::window:
      return 2 * shuffle.window;
    default:
      return 1;
  }
}

RemoteFetch remote_fetch_of(const Recipe& recipe) {
  const std::string fetch = recipe.text("data.remote.fetch");
  if (fetch == "shards") return RemoteFetch::shards;
  return fetch == "ranges" ? RemoteFetch::ranges : RemoteFetch::automatic;
}

RemoteOptions remote_options(const Recipe& recipe, const std::atomic<bool>* stop, StopAt at) {
  RemoteOptions remote;
  remote.fetch = remote_fetch_of(recipe);
  remote.cache = recipe.text("data.remote.cache");
  remote.cache_bytes = static_cast<std::uint64_t>(recipe.integer("data.remote.cache_bytes"));
  remote.deadline_s = recipe.number("data.remote.deadline");
  remote.reach = reach_of(recipe);
  if (const std::int64_t threads = recipe.integer("loader.io_threads"); threads > 0)
    remote.connections = static_cast<int>(threads);
  remote.stop = stop;
  remote.stop_at = at;
  return remote;
}

}  // namespace

DataOptions data_options(const Recipe& recipe, const std::string& split, std::size_t classes,
                         const Host& host, const std::atomic<bool>* stop, StopAt at) {
  DataOptions options;
  options.reader = recipe.text("data.reader");
  options.path = recipe.text("data.path");
  options.split = split;
  options.classes =
      classes > 0 ? static_cast<int>(classes) : static_cast<int>(recipe.integer("model.classes"));
  options.cache = cache_of(recipe);
  options.index = index_use_of(recipe);
  options.synthetic = {static_cast<std::uint64_t>(recipe.integer("data.synthetic.count")),
                       {static_cast<int>(recipe.integer("data.synthetic.width")),
                        static_cast<int>(recipe.integer("data.synthetic.height"))},
                       static_cast<int>(recipe.integer("data.synthetic.channels")),
                       static_cast<int>(recipe.integer("data.synthetic.classes"))};
  options.remote = remote_options(recipe, stop, at);
  if (const std::string fold = recipe.text("data.fold"); !fold.empty())
    options.fold = parse_fold(fold);
  options.listed = recipe.text("data.subset");
  options.fraction = recipe.number("data.fraction");
  options.instance_masks = recipe.boolean("data.instance_masks");
  options.masks = recipe.text("data.masks");
  options.arrays = depth_of(recipe) != Depth::u8;
  options.members = parse_members(recipe.text("data.members"));
  options.warn = [&host](const std::string& text) { host.say("warning: " + text); };
  for (const millrace_unit* unit : plugins::plugin_readers()) {
    if (unit->name != options.reader) continue;
    for (const Param& param : plugins::to_declaration(*unit).params)
      options.parameters[param.name] = recipe.at("data." + options.reader + "." + param.name);
  }
  return options;
}

std::shared_ptr<const Reader> open_data(const Recipe& recipe, const std::string& split,
                                        std::size_t classes, const Host& host,
                                        const std::atomic<bool>* stop, StopAt at) {
  const DataOptions options = data_options(recipe, split, classes, host, stop, at);
  if (is_remote(options.path) && options.cache == Cache::cold)
    throw UsageError("data.cache=cold with a remote data.path: cold reads are of a local disk",
                     "leave out data.cache, or fetch the set first");
  if (options.path.empty() && options.reader != "synthetic")
    throw UsageError(
        "data.path is not set",
        fmt::format("set data.path=DIR; `millrace data make {0} data/{0}` generates a data set",
                    generated_for(options.reader)));
  auto reader = open_reader(options);
  if (options.cache == Cache::ram)
    host.say(fmt::format("data.cache=ram: up to {:.1f} MB of {} are kept in memory",
                         static_cast<double>(reader->info().bytes) / 1e6, split));
  return reader;
}

std::shared_ptr<StorageModel> emulated_storage(const Recipe& recipe) {
  const StorageOptions options{recipe.number("data.storage.bandwidth") * 1e6,
                               recipe.number("data.storage.latency") * 1e-3,
                               recipe.number("data.storage.iops")};
  return options.limited() ? std::make_shared<StorageModel>(options) : nullptr;
}

}  // namespace millrace::pipeline
