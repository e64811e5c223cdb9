// Splits arguments, and loads recipes, plugins, data sets and plans.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <limits>

#include "base/text.h"
#include "millrace/error.h"
#include "millrace/recipe.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/readers/storage.h"
#include "pipeline/recipe/recipe_file.h"
#include "pipeline/recipe/recipe_keys.h"
#include "pipeline/remote/url.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"
#include "tools/plugins/grants.h"
#include "tools/terminal/terminal.h"
#include "tools/training/recipe_choices.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const Param& key : recipe_keys()) names.push_back(key.name);
  return names;
}

/// Returns the key that `word` names, itself or as other programs call it; empty if none.
std::string key_of(std::string_view word) {
  const std::vector<std::string> names = key_names();
  if (std::find(names.begin(), names.end(), word) != names.end()) return std::string(word);
  const std::string_view answer = pipeline::answer_to_familiar(word);
  return pipeline::is_key(answer) ? std::string(answer) : "";
}

[[noreturn]] void refuse_spaces(const std::string& given, const std::string& meant) {
  throw UsageError(fmt::format("{}: a key, '=' and a value are one word", given),
                   fmt::format("write it without spaces: {}", meant));
}

/// Throws if the words around `at` are one override with spaces around its '='.
void check_spaces(const std::vector<std::string>& words, std::size_t at) {
  const std::string& word = words[at];
  const std::string next = at + 1 < words.size() ? words[at + 1] : "";
  const bool next_is_value = !next.empty() && !pipeline::is_override(next);
  if (word.starts_with('=')) {  // loader.workers =4 is found at its first word
    refuse_spaces(word, "key=value");
  } else if (!pipeline::is_override(word)) {
    if (next == "=" && at + 2 < words.size())
      refuse_spaces(fmt::format("{} = {}", word, words[at + 2]), word + "=" + words[at + 2]);
    if (next.starts_with('=')) refuse_spaces(word + " " + next, word + next);
  } else if (word.ends_with('=') && next_is_value) {
    refuse_spaces(word + " " + next, word + next);
  }
}

/// Throws if a word that is not a recipe is a key, followed by its value.
void check_bare_key(const std::vector<std::string>& words, std::size_t at) {
  std::error_code ignored;
  if (std::filesystem::exists(words[at], ignored)) return;
  const std::string key = key_of(words[at]);
  if (key.empty()) return;
  const bool has_value = at + 1 < words.size() && !pipeline::is_override(words[at + 1]);
  throw UsageError(fmt::format("{} is a recipe key, and needs its value in the same word", key),
                   fmt::format("write {}={}", key, has_value ? words[at + 1] : "VALUE"));
}

/// Returns the text without its digits.
std::string without_digits(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isdigit(c) != 0; });
  return text;
}

/// Throws if the shell has expanded data.path=shard-{000..003}.tar into one word per shard.
void check_shards(const std::vector<std::string>& words, std::size_t at) {
  if (at == 0 || !words[at].starts_with("data.path=") || !words[at].ends_with(".tar")) return;
  if (words[at] == words[at - 1] || without_digits(words[at]) != without_digits(words[at - 1]))
    return;
  throw UsageError(fmt::format("{} {}: data.path is one word", words[at - 1], words[at]),
                   "the shell takes unquoted braces apart; quote the word: "
                   "'data.path=shard-{000..003}.tar'");
}

}  // namespace

RecipeWords recipe_words(const std::vector<std::string>& arguments) {
  RecipeWords words;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    check_spaces(arguments, i);
    check_shards(arguments, i);
    if (pipeline::is_override(arguments[i])) {
      words.overrides.push_back(arguments[i]);
      continue;
    }
    check_bare_key(arguments, i);
    if (!words.recipe.empty())
      throw UsageError(fmt::format("two recipes: {} and {}", words.recipe, arguments[i]),
                       "give one recipe, then overrides as key=value");
    words.recipe = arguments[i];
  }
  return words;
}

std::string override_for_option(std::string_view option, std::string_view value) {
  constexpr std::size_t kTypingError = 2;
  const std::string_view name =
      option.substr(std::min(option.find_first_not_of('-'), option.size()));
  std::string key(pipeline::answer_to_familiar(name));
  if (!key.empty() && !pipeline::is_key(key)) return key;
  if (key.empty()) {
    const std::vector<std::string> names = key_names();
    const std::string near = pipeline::near_keys(name, names).front();
    const std::string last = near.substr(near.rfind('.') + 1);
    if (std::min(base::edit_distance(name, near), base::edit_distance(name, last)) > kTypingError ||
        name.size() <= kTypingError)
      return "";
    key = near;
  }
  return fmt::format("{}={}", key, value.empty() ? "VALUE" : value);
}

namespace {

namespace fs = std::filesystem;

/// Rejects chains that output.normalize=device cannot serve.
void check_levels(const Recipe& recipe, const std::vector<OpSpec>& chain) {
  if (const DType dtype = dtype_of(recipe); dtype != DType::f32)
    throw UsageError(
        fmt::format(
            "output.normalize=device with output.dtype={}: the device converts levels to f32",
            name_of(dtype)),
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
    if (url.is_bucket())
      throw UsageError(fmt::format("data.path: {}: the address has a query, which a run would "
                                   "record",
                                   pipeline::redacted(path)),
                       "leave it out; a key with a '?' cannot be named");
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

RemoteFetch remote_fetch_of(const Recipe& recipe) {
  const std::string fetch = recipe.text("data.remote.fetch");
  if (fetch == "shards") return RemoteFetch::shards;
  return fetch == "ranges" ? RemoteFetch::ranges : RemoteFetch::automatic;
}

RemoteOptions remote_options(const Recipe& recipe, const std::atomic<bool>* stop) {
  RemoteOptions remote;
  remote.fetch = remote_fetch_of(recipe);
  remote.cache = recipe.text("data.remote.cache");
  remote.cache_bytes = static_cast<std::uint64_t>(recipe.integer("data.remote.cache_bytes"));
  remote.deadline_s = recipe.number("data.remote.deadline");
  remote.reach = reach_of(recipe);
  if (const std::int64_t threads = recipe.integer("loader.io_threads"); threads > 0)
    remote.connections = static_cast<int>(threads);
  // Ranks agree on where to stop, and an open optimizer step needs all its batches.
  const bool anywhere =
      strategy_of(recipe) != StrategyKind::ddp && recipe.integer("train.accumulate") == 1;
  remote.stop = stop == nullptr && anywhere ? &interrupted() : stop;
  return remote;
}

}  // namespace

std::shared_ptr<const Reader> open_data(const Recipe& recipe, const std::string& split,
                                        std::size_t classes, const std::atomic<bool>* stop) {
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
  options.remote = remote_options(recipe, stop);
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
  const int classes = named > 0 ? named : static_cast<int>(info.classes.size());
  if (!info.encoded)
    return std::make_shared<augment::Plan>(chain, Source{info.size, info.channels}, output, options,
                                           classes);
  // Checks the first image on behalf of all; if on_error lets samples fail, the first one that
  // fits.
  Buffer bytes;
  pipeline::DecodeScratch decode;
  const auto most = static_cast<std::uint64_t>(recipe.integer("data.max_pixels"));
  const bool may_fail = on_error_of(recipe) != OnError::fail;
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
  options.mode = loader_mode_of(recipe);
  options.workers = first_workers(recipe);
  options.batch = global_batch(recipe, world);
  options.prefetch = static_cast<int>(recipe.integer("loader.prefetch"));
  options.shuffle = Shuffle::parse(recipe.text("loader.shuffle"));
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
    options.io_threads = storage != nullptr || cache_of(recipe) == Cache::cold ||
                                 pipeline::is_remote(recipe.text("data.path"))
                             ? kIoThreads
                             : 0;
  if (options.workers == 0) options.io_threads = 0;
  options.storage = std::move(storage);
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
