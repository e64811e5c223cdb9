// millrace bench: runs the pipeline alone, as fast as it can, without model or LibTorch.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "pipeline/readers/storage_model.h"
#include "study/analysis/bound.h"
#include "study/records/run_directory.h"
#include "tools/commands/commands.h"
#include "tools/terminal/console.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/training/batch_hash.h"
#include "tools/training/pipeline_setup.h"
#include "tools/training/strategy_setup.h"
#include "tools/training/trace_argument.h"
#include "tools/training/train_records.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

struct BenchArguments {
  std::vector<std::string> recipe;
  bool hash = false;
  std::uint64_t hash_from = 0;
  std::string dump;
  TraceArgument trace;
};

/// Writes the first epoch's bytes as they are in the batches, then its labels: one byte each if all
/// of them fit, else 8 bytes, little-endian. The file gets its name when it is complete.
class Dump {
 public:
  Dump(std::string path, std::size_t classes) : path_(std::move(path)), narrow_(classes <= 256) {
    // Writes directly to a pipe or a device; writes a file atomically.
    std::error_code none;
    const auto status = std::filesystem::status(path_, none);
    target_ = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)
                  ? path_
                  : path_ + ".tmp";
    file_ = std::fopen(target_.c_str(), "wb");
    if (file_ == nullptr) fail();
  }
  ~Dump() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    if (target_ != path_) std::remove(target_.c_str());
  }
  Dump(const Dump&) = delete;
  Dump& operator=(const Dump&) = delete;

  void add(const Batch& batch) {
    put(batch.data(), batch.bytes());
    labels_.insert(labels_.end(), batch.labels(), batch.labels() + batch.count());
  }
  void finish() {
    for (const std::int64_t label : labels_) {
      const auto byte = static_cast<unsigned char>(label);
      narrow_ ? put(&byte, 1) : put(&label, sizeof label);
    }
    const bool closed = std::fclose(file_) == 0;
    file_ = nullptr;
    if (closed && (target_ == path_ || std::rename(target_.c_str(), path_.c_str()) == 0)) return;
    const int error = errno;
    if (target_ != path_) std::remove(target_.c_str());
    errno = error;
    fail();
  }

 private:
  void put(const void* data, std::size_t size) {
    if (std::fwrite(data, 1, size, file_) != size) fail();
  }
  [[noreturn]] void fail() const {
    throw RunError(fmt::format("--dump {} cannot be written: {}", path_, std::strerror(errno)),
                   "make room or choose another file");
  }

  std::string path_;
  bool narrow_;
  std::string target_;
  std::FILE* file_ = nullptr;
  std::vector<std::int64_t> labels_;
};

Json stage_json(const StageTotals& totals) {
  return {{"calls", totals.calls},
          {"cpu_s", totals.cpu_s},
          {"wall_s", totals.wall_s},
          {"bytes", totals.bytes}};
}

std::string stage_table(const Json& json) {
  const double images = json["images"];
  std::vector<std::vector<std::string>> rows{
      {"stage", "calls", "wall s", "cpu s", "µs per image", "MB per cpu s"}};
  for (const auto& [name, stage] : json["per_stage"].items()) {
    const double cpu = stage["cpu_s"];
    const double bytes = stage["bytes"];
    rows.push_back({name, with_commas(stage["calls"]),
                    fmt::format("{:.3f}", stage["wall_s"].get<double>()),
                    fmt::format("{:.3f}", cpu), fmt::format("{:.3f}", 1e6 * cpu / images),
                    bytes > 0 && cpu > 0 ? with_commas(bytes / cpu / 1e6) : "-"});
  }
  return to_table(rows);
}

Exit bench(const BenchArguments& arguments, const ProgramStart& start) {
  const std::unique_ptr<pipeline::Timeline> timeline = arguments.trace.start(start);
  const Recipe recipe = load_recipe(arguments.recipe);
  if (recipe.text("loader.mode") != "normal")
    throw UsageError(
        fmt::format("loader.mode={} leaves the loader nothing to do, and bench measures the "
                    "loader",
                    recipe.text("loader.mode")),
        "use it with millrace train, to measure the device");
  const auto reader = open_data(recipe, recipe.text("data.split"));
  const auto plan = make_plan(recipe, recipe.augment(), *reader);
  LoaderOptions options = loader_options(recipe, emulated_storage(recipe));
  options.epochs = static_cast<std::uint64_t>(recipe.integer("bench.epochs"));
  options.first_batch = static_cast<std::uint64_t>(recipe.integer("bench.first_batch"));
  const std::uint64_t batches_in_all =
      batches_per_epoch(options, reader->info().count) * options.epochs;
  if (options.first_batch > 0 && options.first_batch >= batches_in_all)
    throw UsageError(fmt::format("batch {} is past the last one: there are {} in {} epochs",
                                 options.first_batch, batches_in_all, options.epochs),
                     fmt::format("bench.first_batch counts them from 0 to {}", batches_in_all - 1));
  options.stop = &interrupted();
  if (timeline != nullptr) {
    options.timeline = timeline->add_loader("bench", options.workers, options.io_threads);
    if (options.storage != nullptr) options.storage->record_to(timeline->shared_storage());
  }

  std::unique_ptr<BatchHash> hash = arguments.hash ? std::make_unique<BatchHash>() : nullptr;
  std::unique_ptr<Dump> dump;
  if (!arguments.dump.empty())
    dump = std::make_unique<Dump>(arguments.dump, reader->info().classes.size());

  const std::int64_t cpu_begin = base::Clock::process_cpu_ns();
  const std::int64_t wall_begin = base::Clock::steady_ns();
  std::int64_t first_batch_ns = 0;
  std::uint64_t images = 0;
  std::uint64_t batches = 0;
  Loader loader(reader, plan, options);
  const auto total = static_cast<double>(batches_in_all - options.first_batch);
  ProgressLine line;
  study::WaitBreakdown blame;
  while (Batch batch = loader.next()) {
    const pipeline::BatchHistory history = batch.history();
    blame.add(history, history.got - history.asked);
    if (batches++ == 0) first_batch_ns = base::Clock::steady_ns() - wall_begin;
    images += static_cast<std::uint64_t>(batch.count());
    const std::uint64_t ordinal = options.first_batch + batches - 1;
    if (hash != nullptr && ordinal >= arguments.hash_from) hash->add(batch);
    if (dump != nullptr && batch.epoch() == 0) dump->add(batch);
    if (batches % 64 == 0 && line.due()) {
      const double seconds = static_cast<double>(base::Clock::steady_ns() - wall_begin) * 1e-9;
      line.show(static_cast<double>(batches), total,
                fmt::format("{} images/s", with_commas(static_cast<double>(images) / seconds)));
    }
  }
  const double wall = static_cast<double>(base::Clock::steady_ns() - wall_begin) * 1e-9;
  const double cpu = static_cast<double>(base::Clock::process_cpu_ns() - cpu_begin) * 1e-9;
  line.clear();
  if (interrupted())
    throw Error(Exit::interrupted, fmt::format("interrupted after {} batches", batches));
  if (dump != nullptr) dump->finish();
  if (timeline != nullptr) arguments.trace.finish(*timeline, "", "timeline.json", 0);

  const LoaderStats stats = loader.stats();
  Json json;
  json["command"] = "bench";
  json["recipe"] = recipe.name();
  json["dataset"] = reader->info().path;
  json["images_per_s"] = static_cast<double>(images) / wall;
  json["cpu_s_per_1000"] = cpu * 1000 / static_cast<double>(images);
  json["wall_s"] = wall;
  json["cpu_s"] = cpu;
  json["images"] = images;
  json["batches"] = batches;
  json["failed"] = stats.failed;
  json["workers"] = options.workers;
  json["io_threads"] = options.io_threads;
  json["prefetch"] = options.prefetch;
  json["batch"] = options.batch;
  json["sample"] = {{"channels", loader.output().channels},
                    {"height", loader.output().size.height},
                    {"width", loader.output().size.width},
                    {"dtype", name_of(loader.output().dtype)}};
  json["first_batch_s"] = static_cast<double>(first_batch_ns) * 1e-9;
  json["per_stage"]["read"] = stage_json(stats.read);
  if (reader->info().encoded) json["per_stage"]["decode"] = stage_json(stats.decode);
  json["per_stage"]["augment"] = stage_json(stats.augment);
  if (options.workers > 0)
    json["per_stage"]["machinery"] = {{"calls", batches},
                                      {"cpu_s", stats.machinery_cpu_s},
                                      {"wall_s", stats.machinery_cpu_s},
                                      {"bytes", 0}};
  const study::BoundVerdict verdict =
      study::judge(study::bound_figures(blame, stats, options, cores(), /*update_s=*/0, images));
  json["bound"] = study::name_of(verdict.bound);
  json["verdict"] = verdict.sentence;
  json["blame"] = study::to_json(blame.seconds());
  json["busy_s"] = stats.busy_s;
  json["core_wait_s"] = stats.core_wait_s;
  json["plugins"] = plugins_json();
  if (recipe.text("data.cache") == "cold") json["cold"] = cold_json(stats.cold);
  json["slot_bytes"] = loader.slot_bytes();
  json["peak_rss_bytes"] = peak_rss_bytes();
  if (hash != nullptr) json["batch_hash"] = hash->digest();

  if (verbosity().json) {
    print("{}\n", study::to_text(json, 2));
    return Exit::done;
  }
  print("{}: {} images in {} batches, {}\n", recipe.name(),
        with_commas(static_cast<double>(images)), with_commas(static_cast<double>(batches)),
        threads_text(options));
  print(
      "{} images/s, {} images per CPU-second, {:.3f} s, first batch after {:.2f} ms, {:.1f} MB "
      "resident\n\n",
      with_commas(static_cast<double>(images) / wall),
      with_commas(static_cast<double>(images) / cpu), wall,
      static_cast<double>(first_batch_ns) * 1e-6, static_cast<double>(peak_rss_bytes()) / 1e6);
  print("{}{}\n", stage_table(json), verdict.sentence);
  if (stats.cold.proven + stats.cold.resident > 0)
    print("{} reads came from storage, {} found pages in memory\n",
          with_commas(static_cast<double>(stats.cold.proven)),
          with_commas(static_cast<double>(stats.cold.resident)));
  if (stats.failed > 0) print("{} samples failed\n", stats.failed);
  if (hash != nullptr) print("batch_hash {}\n", hash->digest());
  return Exit::done;
}

}  // namespace

void add_bench(CLI::App& app, Command& chosen) {
  auto* command =
      app.add_subcommand("bench", "run the pipeline alone, without a model or LibTorch");
  auto arguments = std::make_shared<BenchArguments>();
  command->add_option("recipe", arguments->recipe, "[RECIPE] [key=value ...]");
  command->add_flag("--hash", arguments->hash,
                    "compute the xxh3 hash of every output byte and label, in order");
  command->add_option("--hash-from", arguments->hash_from,
                      "hash from this batch on; equals the hash of a run that starts there "
                      "(bench.first_batch)");
  command->add_option("--dump", arguments->dump,
                      "write the first epoch's bytes, then its labels, to FILE");
  arguments->trace.add_to(*command, "timeline.json in the current directory");
  add_common(*command);
  command->footer(
      "Example:\n  millrace bench mnist-lenet data.path=data/digits loader.workers=1 --hash");
  add_bench_ops(*command, chosen);
  command->callback([command, arguments, &chosen] {
    if (!command->get_subcommands().empty()) return;  // the subcommand `ops` runs instead
    chosen = [arguments](const ProgramStart& start) { return bench(*arguments, start); };
  });
}

}  // namespace millrace::tools
