// Loads recipes, plugins, data sets and plans.
#include "tools/training/pipeline_setup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "millrace/error.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/readers/storage_model.h"
#include "pipeline/recipe/recipe_file.h"
#include "pipeline/remote/url.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"
#include "tools/plugins/grants.h"
#include "tools/terminal/console.h"
#include "tools/terminal/interrupt.h"
#include "tools/training/recipe_words.h"
#include "tools/training/strategy_setup.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

/// Rejects chains that output.normalize=device cannot serve.
void check_levels(const Recipe& recipe, const std::vector<OpSpec>& chain) {
  const std::string& dtype = recipe.text("output.dtype");
  if (dtype != "f32")
    throw UsageError(
        fmt::format(
            "output.normalize=device with output.dtype={}: the device converts levels to f32",
            dtype),
        "leave output.dtype at f32, or set output.normalize=loader");
  for (const OpSpec& spec : chain) {
    // CutMix only moves pixels; ops that blend them would have their results rounded to levels.
    if (!spec.enabled || spec.op == "cutmix" || plugins::augmentation(spec.op).batch == nullptr)
      continue;
    throw UsageError(
        fmt::format("output.normalize=device with {}: mixed values would be rounded to levels",
                    spec.id),
        "set output.normalize=loader, or leave the op out");
  }
}

/// Rejects an address that would take a secret into config.toml. `path` is a value of data.path.
void check_address(const std::string& path) {
  if (!pipeline::is_remote(path)) return;
  try {
    const pipeline::Url url = pipeline::Url::parse(path);
    if (url.query.empty()) return;
  } catch (const DataError& error) {
    throw UsageError(fmt::format("data.path: {}", error.what()), error.hint());
  }
  throw UsageError(fmt::format("data.path: {}: the address has a query, which a run would record",
                               pipeline::redacted(path)),
                   "leave it out, and set MILLRACE_REMOTE_QUERY to it in the environment");
}

/// Returns the kind of `millrace data make` whose sets `reader` opens, as they are or packed.
const char* generated_for(const std::string& reader) {
  return reader == "idx" ? "digits" : reader == "cifar" ? "objects" : "photos";
}

}  // namespace

std::vector<fs::path> recipe_folders() {
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  return {folder / "../share/millrace/recipes", folder / "recipes"};
}

namespace {

Recipe load_any_recipe(const std::vector<std::string>& arguments, Plugins plugins) {
  auto [recipe, overrides] = recipe_words(arguments);
  constexpr std::string_view kPath = "data.path=";
  for (const std::string& word : overrides)
    if (word.starts_with(kPath)) check_address(word.substr(kPath.size()));
  // Plugins declare augmentations and keys, so they are loaded before anything is checked.
  const auto folders = recipe_folders();
  const pipeline::PluginsPath path = pipeline::plugins_path(recipe, overrides, folders);
  if (plugins == Plugins::none) {
    try {
      return Recipe::load(op_declarations(), recipe, overrides, folders);
    } catch (const UsageError& error) {
      if (path.value.empty()) throw;
      throw UsageError(fmt::format("{} (plugins are not loaded here)", error.what()), error.hint());
    }
  }
  load_asked_plugins(path);
  if (const std::string more = load_plugins_of_environment(); !more.empty()) {
    // config.toml reproduces the run, whatever the environment says later.
    const bool there = path.value == more || path.value.ends_with(":" + more);
    overrides.push_back("plugins.path=" + (there                ? path.value
                                           : path.value.empty() ? more
                                                                : path.value + ":" + more));
  }
  return Recipe::load(op_declarations(), recipe, overrides, folders);
}

}  // namespace

Recipe load_recipe(const std::vector<std::string>& arguments, Plugins plugins) {
  Recipe recipe = load_any_recipe(arguments, plugins);
  check_address(recipe.text("data.path"));
  return recipe;
}

nlohmann::ordered_json plugins_json() {
  auto all = nlohmann::ordered_json::array();
  for (const plugins::PluginEntry& plugin : plugins::plugins_in_use())
    all.push_back({{"id", plugin.table->id},
                   {"version", plugin.table->version},
                   {"file", plugin.file.empty() ? nlohmann::ordered_json(nullptr)
                                                : nlohmann::ordered_json(plugin.file)}});
  return all;
}

namespace {

/// Returns how many samples lie at most between two that a loader needs at about the same time.
std::uint64_t reach_of(const Recipe& recipe) {
  const Shuffle shuffle = Shuffle::parse(recipe.text("loader.shuffle"));
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

RemoteOptions remote_options(const Recipe& recipe) {
  RemoteOptions remote;
  remote.cache = recipe.text("data.remote.cache");
  remote.cache_bytes = static_cast<std::uint64_t>(recipe.integer("data.remote.cache_bytes"));
  remote.deadline_s = recipe.number("data.remote.deadline");
  remote.reach = reach_of(recipe);
  // Ranks agree on where to stop, and an open optimiser step needs all its batches.
  if (recipe.text("train.strategy") != "ddp" && recipe.integer("train.accumulate") == 1)
    remote.stop = &interrupted();
  return remote;
}

}  // namespace

std::shared_ptr<const Reader> open_data(const Recipe& recipe, const std::string& split,
                                        std::size_t classes) {
  DataOptions options;
  options.reader = recipe.text("data.reader");
  options.path = recipe.text("data.path");
  options.split = split;
  options.classes =
      classes > 0 ? static_cast<int>(classes) : static_cast<int>(recipe.integer("model.classes"));
  const std::string& cache = recipe.text("data.cache");
  options.cache = cache == "ram" ? Cache::ram : cache == "cold" ? Cache::cold : Cache::os;
  const std::string& index = recipe.text("data.index");
  options.index = index == "require" ? IndexUse::require
                  : index == "off"   ? IndexUse::off
                                     : IndexUse::automatic;
  options.synthetic = {static_cast<std::uint64_t>(recipe.integer("data.synthetic.count")),
                       {static_cast<int>(recipe.integer("data.synthetic.width")),
                        static_cast<int>(recipe.integer("data.synthetic.height"))},
                       static_cast<int>(recipe.integer("data.synthetic.channels")),
                       static_cast<int>(recipe.integer("data.synthetic.classes"))};
  options.remote = remote_options(recipe);
  options.warn = [](const std::string& text) { say("warning: " + text); };
  for (const millrace_unit* unit : plugins::plugin_readers()) {
    if (unit->name != options.reader) continue;
    for (const Param& param : plugins::to_declaration(*unit).params)
      options.parameters[param.name] = recipe.at("data." + options.reader + "." + param.name);
  }
  if (pipeline::is_remote(options.path) && options.cache == Cache::cold)
    throw UsageError("data.cache=cold with a remote data.path: cold reads are of a local disk",
                     "leave out data.cache, or fetch the set first");
  if (options.path.empty() && options.reader != "synthetic")
    throw UsageError(
        "data.path is not set",
        fmt::format("set data.path=DIR; `millrace data make {0} data/{0}` generates a data set",
                    generated_for(options.reader)));
  auto reader = open_reader(options);
  if (options.cache == Cache::ram)
    say(fmt::format("data.cache=ram: up to {:.1f} MB of {} are kept in memory",
                    static_cast<double>(reader->info().bytes) / 1e6, split));
  return reader;
}

std::shared_ptr<const augment::Plan> make_plan(const Recipe& recipe,
                                               const std::vector<OpSpec>& chain,
                                               const Reader& reader) {
  const DatasetInfo& info = reader.info();
  OutputOptions output;
  for (const DType dtype : {DType::f32, DType::u8, DType::f16, DType::bf16})
    if (name_of(dtype) == recipe.text("output.dtype")) output.dtype = dtype;
  if (recipe.text("output.normalize") == "device") {
    check_levels(recipe, chain);
    output.dtype = DType::u8;
  }
  output.layout = recipe.text("output.layout") == "hwc" ? Layout::hwc : Layout::chw;
  output.mean = recipe.numbers("output.mean");
  output.std = recipe.numbers("output.std");
  PlanOptions options;
  options.resample = recipe.text("resample") == "stepwise" ? Resample::stepwise : Resample::once;
  options.region = recipe.text("decode.region") == "on";
  options.dct = recipe.text("decode.scale") == "dct";
  const auto named = static_cast<int>(recipe.integer("model.classes"));
  const int classes = named > 0 ? named : static_cast<int>(info.classes.size());
  if (!info.encoded)
    return std::make_shared<augment::Plan>(chain, Source{info.size, info.channels}, output, options,
                                           classes);
  // Checks the first image on behalf of all; if on_error lets samples fail, the first one that
  // fits.
  Buffer bytes;
  pipeline::DecodeScratch decode;
  const auto most = static_cast<std::uint64_t>(recipe.integer("data.max_pixels"));
  const bool may_fail = recipe.text("loader.on_error") != "fail";
  for (std::uint64_t i = 0;; ++i) {
    try {
      const Size size = decode.open(reader.read(i, bytes).bytes, most).size;
      return std::make_shared<augment::Plan>(chain, Source{size, 3}, output, options, classes);
    } catch (const augment::SizeMismatch& error) {
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

std::shared_ptr<pipeline::StorageModel> emulated_storage(const Recipe& recipe) {
  const pipeline::StorageOptions options{recipe.number("data.storage.bandwidth") * 1e6,
                                         recipe.number("data.storage.latency") * 1e-3,
                                         recipe.number("data.storage.iops")};
  return options.limited() ? std::make_shared<pipeline::StorageModel>(options) : nullptr;
}

bool has_auto_workers(const Recipe& recipe) {
  return std::holds_alternative<std::string>(recipe.at("loader.workers"));
}

int first_workers(const Recipe& recipe) {
  if (!has_auto_workers(recipe)) return static_cast<int>(recipe.integer("loader.workers"));
  return std::max(1, cores() / 2);
}

std::int64_t global_batch(const Recipe& recipe, int world) {
  const std::int64_t per_rank = recipe.integer("loader.batch_per_rank");
  return per_rank > 0 ? per_rank * world : recipe.integer("loader.batch");
}

LoaderOptions loader_options(const Recipe& recipe, std::shared_ptr<pipeline::StorageModel> storage,
                             int rank, int world) {
  LoaderOptions options;
  options.rank = rank;
  options.world = world;
  check_mode(recipe);
  const std::string& mode = recipe.text("loader.mode");
  options.mode = mode == "synthetic" ? LoaderMode::synthetic
                 : mode == "cached"  ? LoaderMode::cached
                                     : LoaderMode::normal;
  options.workers = first_workers(recipe);
  options.batch = global_batch(recipe, world);
  options.prefetch = static_cast<int>(recipe.integer("loader.prefetch"));
  options.shuffle = Shuffle::parse(recipe.text("loader.shuffle"));
  options.drop_last = recipe.boolean("loader.drop_last");
  const std::string& on_error = recipe.text("loader.on_error");
  options.on_error = on_error == "skip"      ? OnError::skip
                     : on_error == "replace" ? OnError::replace
                                             : OnError::fail;
  options.grain = static_cast<int>(recipe.integer("loader.grain"));
  options.seed = static_cast<std::uint64_t>(recipe.integer("seed"));
  options.max_pixels = static_cast<std::uint64_t>(recipe.integer("data.max_pixels"));
  options.max_bytes = static_cast<std::uint64_t>(recipe.integer("loader.max_bytes"));
  constexpr int kIoThreads = 4;
  options.io_threads = static_cast<int>(recipe.integer("loader.io_threads"));
  if (options.io_threads < 0)
    options.io_threads = storage != nullptr || recipe.text("data.cache") == "cold" ||
                                 pipeline::is_remote(recipe.text("data.path"))
                             ? kIoThreads
                             : 0;
  if (options.workers == 0) options.io_threads = 0;
  options.storage = std::move(storage);
  return options;
}

void check_mode(const Recipe& recipe) {
  const std::string& mode = recipe.text("loader.mode");
  if (mode == "normal") return;
  const auto refuse = [&](const std::string& what) {
    throw UsageError(fmt::format("loader.mode={} with {}: nothing is read", mode, what),
                     fmt::format("leave out {}, or use loader.mode=normal", what));
  };
  if (recipe.text("data.cache") != "os") refuse("data.cache=" + recipe.text("data.cache"));
  for (const char* key : {"data.storage.bandwidth", "data.storage.latency", "data.storage.iops"})
    if (recipe.number(key) > 0) refuse(key);
}

LoaderOptions eval_loader_options(const Recipe& recipe, const Reader& reader,
                                  std::shared_ptr<pipeline::StorageModel> storage, int rank,
                                  int world) {
  LoaderOptions options = loader_options(recipe, std::move(storage), rank, world);
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

}  // namespace millrace::tools
