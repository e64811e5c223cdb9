// millrace bench: runs the pipeline alone, as fast as it can, without model or LibTorch.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "augment/plan/plan_setup.h"
#include "base/available_cores.h"
#include "pipeline/decoders/jpeg/jpeg.h"
#include "pipeline/readers/storage.h"
#include "pipeline/readers/url.h"
#include "pipeline/setup/choices.h"
#include "pipeline/setup/data_setup.h"
#include "pipeline/setup/loader_setup.h"
#include "study/analysis/bound.h"
#include "study/records/run_directory.h"
#include "study/records/wait_records.h"
#include "tools/commands/bench_meter.h"
#include "tools/commands/commands.h"
#include "tools/terminal/terminal.h"
#include "tools/training/records.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

struct BenchArguments {
  std::vector<std::string> recipe;
  bool hash = false;
  std::uint64_t hash_from = 0;
  std::string dump;
  std::string batches, seconds;  ///< values of bench.batches and bench.seconds
  TraceArgument trace;
};

/// A pipeline that is ready to run, and what limits its run.
struct Pipeline {
  Recipe recipe;
  std::shared_ptr<const Reader> reader;
  std::shared_ptr<const augment::Plan> plan;
  LoaderOptions options;
  BenchLimits limits;
};

/// Rejects options that need a number of batches that is known beforehand.
void check_length(const BenchArguments& arguments, const Recipe& recipe) {
  const bool by_clock = recipe.number("bench.seconds") > 0;
  if (by_clock && (arguments.hash || !arguments.dump.empty()))
    throw UsageError(
        fmt::format("{} with bench.seconds: the number of batches depends on the clock",
                    arguments.hash ? "--hash" : "--dump"),
        "give the number of batches: bench.batches=N");
}

Pipeline open_pipeline(const BenchArguments& arguments) {
  Recipe recipe = load_recipe(arguments.recipe);
  if (pipeline::loader_mode_of(recipe) != LoaderMode::normal)
    throw UsageError(
        fmt::format("loader.mode={} leaves the loader nothing to do, and bench measures the "
                    "loader",
                    recipe.text("loader.mode")),
        "use it with millrace train, to measure the device");
  check_length(arguments, recipe);
  auto reader = open_data(recipe, recipe.text("data.split"));
  auto plan = augment::make_training_plan(recipe, *reader);
  LoaderOptions options = pipeline::loader_options(recipe, pipeline::emulated_storage(recipe),
                                                   static_cast<int>(recipe.integer("bench.rank")),
                                                   static_cast<int>(recipe.integer("bench.world")));
  check_batch(options, *reader);
  const BenchLimits limits = BenchLimits::of(recipe, reader->info().count, options);
  if (options.workers > 0 && limits.warmup > 0 &&
      limits.warmup <= static_cast<std::uint64_t>(options.prefetch))
    say(fmt::format(
        "warning: bench.warmup={} is too short: of the {} batches that the loader makes "
        "at once when it starts, {} count as measured",
        limits.warmup, options.prefetch + 1,
        static_cast<std::uint64_t>(options.prefetch) + 1 - limits.warmup));
  options.stop = &interrupted();
  return {std::move(recipe), std::move(reader), std::move(plan), std::move(options), limits};
}

/// Shows how far a run is: a bar on a terminal, otherwise one line per minute.
class BenchProgress {
 public:
  explicit BenchProgress(const BenchLimits& limits) : limits_(limits) {}

  void update(const BenchMeter& meter) {
    const bool redraw = line_.due();
    const bool report = !verbosity().quiet && base::Clock::steady_ns() >= next_report_ns_;
    if (!redraw && !report) return;
    const BenchCounts all = meter.all();
    const BenchCounts measured = meter.measured();
    double done = 0, total = 1;
    if (limits_.batches) {
      done = static_cast<double>(all.batches);
      total = static_cast<double>(*limits_.batches);
    }
    if (limits_.seconds > 0 && measured.wall_s / limits_.seconds > done / total) {
      done = measured.wall_s;
      total = limits_.seconds;
    }
    const double left_s = done > 0 ? all.wall_s * (total - done) / done : 0;
    const std::string text = fmt::format(
        "{} batches, {} images/s, {} left", with_commas(static_cast<double>(all.batches)),
        with_commas(static_cast<double>(all.images) / all.wall_s), duration(left_s));
    if (redraw) line_.show(done, total, text);
    if (!report) return;
    next_report_ns_ = base::Clock::steady_ns() + kReportNs;
    if (isatty(STDERR_FILENO) == 0) say(text);
  }
  void clear() { line_.clear(); }

 private:
  static constexpr std::int64_t kReportNs = 60'000'000'000;

  static std::string duration(double seconds) {
    const auto whole = static_cast<std::uint64_t>(seconds + 0.5);
    return whole < 60 ? fmt::format("{} s", whole)
                      : fmt::format("{}:{:02} min", whole / 60, whole % 60);
  }

  const BenchLimits& limits_;
  ProgressLine line_;
  std::int64_t next_report_ns_ = base::Clock::steady_ns() + kReportNs;
};

/// Takes batches until the run's end or an interrupt.
void run_batches(const BenchArguments& arguments, const Pipeline& pipeline, Loader& loader,
                 BenchMeter& meter, BatchHash* hash, BenchDump* dump) {
  constexpr std::uint64_t kBatchesPerLook = 16;  // looks at the clock are not free
  BenchProgress progress(pipeline.limits);
  const BenchLimits& limits = pipeline.limits;
  std::uint64_t batches = 0;
  while (!limits.batches || batches < *limits.batches) {
    const Batch batch = loader.next();
    if (!batch) break;
    meter.add(batch, loader);
    const std::uint64_t ordinal = pipeline.options.first_batch + batches;
    ++batches;
    if (hash != nullptr && ordinal >= arguments.hash_from) hash->add(batch);
    if (dump != nullptr && batch.epoch() == 0) dump->add(batch);
    if (limits.seconds > 0 && batches > limits.warmup && meter.measured_s() >= limits.seconds)
      break;
    if (batches % kBatchesPerLook == 0) progress.update(meter);
  }
  progress.clear();
  meter.stop();
  if (interrupted())
    throw Error(Exit::interrupted, fmt::format("interrupted after {} batches", batches));
}

Json stage_json(const StageTotals& totals, const Json& per_image) {
  return {{"calls", totals.calls},
          {"cpu_s", totals.cpu_s},
          {"wall_s", totals.wall_s},
          {"bytes", totals.bytes},
          {"per_image_s", per_image}};
}

Json stages_json(const Pipeline& pipeline, const BenchMeter& meter, const LoaderStats& stats) {
  using measure::Stage;
  Json json;
  json["read"] = stage_json(stats.read, meter.per_image(Stage::read));
  if (pipeline.reader->info().encoded)
    json["decode"] = stage_json(stats.decode, meter.per_image(Stage::decode));
  json["augment"] = stage_json(stats.augment, meter.per_image(Stage::augment));
  if (pipeline.options.workers > 0)
    json["machinery"] = {{"calls", meter.measured().batches},
                         {"cpu_s", stats.machinery_cpu_s},
                         {"wall_s", stats.machinery_cpu_s},
                         {"bytes", 0}};
  return json;
}

/// Returns the numbers of JPEG images by who decoded them; null if there were none.
Json jpeg_json() {
  const pipeline::JpegCounts counts = pipeline::jpeg_counts();
  if (pipeline::jpeg_summary(counts).empty()) return nullptr;
  Json json;
  for (std::size_t i = 0; i < counts.size(); ++i)
    json[std::string(name_of(static_cast<pipeline::JpegRoute>(i)))] = counts[i];
  json["why_libjpeg"] = pipeline::why_libjpeg();
  return json;
}

std::string stage_table(const Json& json) {
  const double images = json["measured"]["images"];
  std::vector<std::vector<std::string>> rows{
      {"stage", "calls", "wall s", "cpu s", "µs per image", "p50 µs", "p99 µs", "MB per cpu s"}};
  for (const auto& [name, stage] : json["per_stage"].items()) {
    const double cpu = stage["cpu_s"];
    const double bytes = stage["bytes"];
    const auto percentile = [&stage = stage](const char* which) {
      return stage.contains("per_image_s")
                 ? fmt::format("{:.2f}", 1e6 * stage["per_image_s"][which].get<double>())
                 : "-";
    };
    rows.push_back(
        {name, with_commas(stage["calls"]), fmt::format("{:.3f}", stage["wall_s"].get<double>()),
         fmt::format("{:.3f}", cpu), fmt::format("{:.3f}", 1e6 * cpu / images), percentile("p50"),
         percentile("p99"), bytes > 0 && cpu > 0 ? with_commas(bytes / cpu / 1e6) : "-"});
  }
  return to_table(rows);
}

Json record_of(const Pipeline& pipeline, const BenchMeter& meter, const Loader& loader) {
  const LoaderOptions& options = pipeline.options;
  const DatasetInfo& info = pipeline.reader->info();
  const LoaderStats stats = meter.stats(loader);
  const BenchCounts all = meter.all();
  const BenchCounts measured = meter.measured();
  Json json;
  json["command"] = "bench";
  json["recipe"] = pipeline.recipe.name();
  json["dataset"] = info.path;
  json["images_per_s"] = static_cast<double>(measured.images) / measured.wall_s;
  json["cpu_s_per_1000"] = measured.cpu_s * 1000 / static_cast<double>(measured.images);
  json["wall_s"] = all.wall_s;
  json["cpu_s"] = all.cpu_s;
  json["images"] = all.images;
  json["batches"] = all.batches;
  json["measured"] = {{"batches", measured.batches},
                      {"images", measured.images},
                      {"wall_s", measured.wall_s},
                      {"cpu_s", measured.cpu_s}};
  json["failed"] = stats.failed;
  json["workers"] = options.workers;
  json["io_threads"] = options.io_threads;
  json["prefetch"] = options.prefetch;
  json["batch"] = options.batch;
  json["sample"] = {{"channels", loader.output().channels},
                    {"height", loader.output().size.height},
                    {"width", loader.output().size.width},
                    {"dtype", name_of(loader.output().dtype)}};
  json["first_batch_s"] = meter.first_batch_s();
  json["batch_interval_s"] = meter.intervals();
  json["per_stage"] = stages_json(pipeline, meter, stats);
  const study::BoundVerdict verdict = study::classify(study::bound_figures(
      meter.blame(), stats, options, base::available_cores(), /*update_s=*/0, measured.images));
  json["bound"] = study::name_of(verdict.bound);
  json["verdict"] = verdict.sentence;
  json["blame"] = study::to_json(study::by_part(meter.blame().seconds()));
  json["busy_s"] = stats.busy_s;
  json["core_wait_s"] = stats.core_wait_s;
  json["plugins"] = study::to_json(plugin_records());
  if (const Json jpeg = jpeg_json(); !jpeg.is_null()) json["jpeg"] = jpeg;
  if (pipeline::is_remote(pipeline.reader->info().path))
    json["remote"] = study::to_json(remote_record(json["blame"]["storage"], stats.read.wall_s));
  if (pipeline::cache_of(pipeline.recipe) == Cache::cold)
    json["cold"] = study::to_json(cold_record(stats.cold));
  json["slot_bytes"] = loader.slot_bytes();
  json["peak_rss_bytes"] = peak_rss_bytes();
  return json;
}

std::string report_of(const Pipeline& pipeline, const Json& json, const ColdCounts& cold) {
  const Json& measured = json["measured"];
  const double images = measured["images"];
  const std::uint64_t batches = json["batches"];
  const std::uint64_t warmup = batches - measured["batches"].get<std::uint64_t>();
  const Json& interval = json["batch_interval_s"];
  const auto ms = [](const Json& seconds) { return 1e3 * seconds.get<double>(); };
  std::string text = fmt::format("{}: {} images in {} batches, {}\n", pipeline.recipe.name(),
                                 with_commas(json["images"]), with_commas(json["batches"]),
                                 threads_text(pipeline.options));
  if (warmup > 0) text += fmt::format("batches left out below, as warm-up: {}\n", warmup);
  text += fmt::format(
      "{} images/s, {} images per CPU-second, {:.3f} s, first batch after {:.2f} ms, {:.1f} MB "
      "resident\n",
      with_commas(json["images_per_s"]), with_commas(images / measured["cpu_s"].get<double>()),
      measured["wall_s"].get<double>(), ms(json["first_batch_s"]),
      json["peak_rss_bytes"].get<double>() / 1e6);
  text += fmt::format(
      "time between batches: median {:.3f} ms, p90 {:.3f} ms, p99 {:.3f} ms, longest {:.3f} ms\n\n",
      ms(interval["p50"]), ms(interval["p90"]), ms(interval["p99"]), ms(interval["max"]));
  text += fmt::format("{}{}\n", stage_table(json), json["verdict"].get<std::string>());
  if (cold.proven + cold.resident > 0)
    text += fmt::format("{} reads came from storage, {} found pages in memory\n",
                        with_commas(static_cast<double>(cold.proven)),
                        with_commas(static_cast<double>(cold.resident)));
  if (json.contains("jpeg")) text += pipeline::jpeg_summary(pipeline::jpeg_counts()) + "\n";
  if (json.contains("remote")) text += remote_text(json["remote"]) + "\n";
  if (json["failed"] > 0) text += fmt::format("{} samples failed\n", json["failed"].get<int>());
  if (json.contains("batch_hash"))
    text += fmt::format("batch_hash {}\n", json["batch_hash"].get<std::string>());
  return text;
}

Exit bench(const BenchArguments& arguments, const ProgramStart& start) {
  const std::unique_ptr<measure::Timeline> timeline = arguments.trace.start(start);
  Pipeline pipeline = open_pipeline(arguments);
  LoaderOptions& options = pipeline.options;
  if (timeline != nullptr) {
    options.timeline = timeline->add_loader("bench", options.workers, options.io_threads);
    if (options.storage != nullptr) options.storage->record_to(timeline->shared_storage());
  }
  const auto hash = arguments.hash ? std::make_unique<BatchHash>() : nullptr;
  const auto dump =
      arguments.dump.empty()
          ? nullptr
          : std::make_unique<BenchDump>(arguments.dump, pipeline.reader->info().classes.size());
  BenchMeter meter(pipeline.limits.warmup);
  Loader loader(pipeline.reader, pipeline.plan, options);
  run_batches(arguments, pipeline, loader, meter, hash.get(), dump.get());
  if (dump != nullptr) dump->finish();
  if (timeline != nullptr) arguments.trace.finish(*timeline, "", 0);

  Json json = record_of(pipeline, meter, loader);
  if (hash != nullptr) json["batch_hash"] = hash->digest();
  if (verbosity().json)
    print("{}\n", study::to_text(json, 2));
  else
    print("{}", report_of(pipeline, json, loader.stats().cold));
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
  command
      ->add_option("--batches", arguments->batches,
                   "end after N batches; the same as bench.batches=N")
      ->type_name("N");
  command
      ->add_option("--seconds", arguments->seconds,
                   "end after S seconds of measuring; the same as bench.seconds=S")
      ->type_name("S");
  arguments->trace.add_to(*command);
  add_common(*command);
  command->footer(
      "Example:\n  millrace bench mnist-lenet data.path=data/digits loader.workers=1 --hash\n"
      "  millrace bench mnist-lenet data.path=data/digits --seconds 10");
  add_bench_ops(*command, chosen);
  command->callback([command, arguments, &chosen] {
    if (!command->get_subcommands().empty()) return;  // the subcommand `ops` runs instead
    if (!arguments->batches.empty())
      arguments->recipe.push_back("bench.batches=" + arguments->batches);
    if (!arguments->seconds.empty())
      arguments->recipe.push_back("bench.seconds=" + arguments->seconds);
    chosen = [arguments](const ProgramStart& start) { return bench(*arguments, start); };
  });
}

}  // namespace millrace::tools
