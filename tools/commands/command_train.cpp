// millrace train: trains, evaluates and records.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "base/suggest.h"
#include "pipeline/readers/storage_model.h"
#include "strategies/trainer/simulated.h"
#include "strategies/trainer/torch_library.h"
#include "strategies/trainer/utilization.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "tools/commands/commands.h"
#include "tools/terminal/console.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/training/auto_workers.h"
#include "tools/training/pipeline_setup.h"
#include "tools/training/rank_setup.h"
#include "tools/training/recorder.h"
#include "tools/training/resume.h"
#include "tools/training/strategy_setup.h"
#include "tools/training/trace_argument.h"
#include "tools/training/train_records.h"

namespace millrace::tools {
namespace {

struct TrainArguments {
  std::vector<std::string> recipe;
  std::string run;
  bool hash = false;
  bool resume = false;
  TraceArgument trace;
};

train::TrainOptions train_options(const Recipe& recipe) {
  train::TrainOptions options;
  options.epochs = static_cast<std::uint64_t>(recipe.integer("train.epochs"));
  options.steps = static_cast<std::uint64_t>(recipe.integer("train.steps"));
  options.eval_every = static_cast<std::uint64_t>(recipe.integer("eval.every"));
  options.checkpoint_every = static_cast<std::uint64_t>(recipe.integer("train.checkpoint_every"));
  options.accumulate = static_cast<std::uint64_t>(recipe.integer("train.accumulate"));
  options.schedule = {.name = recipe.text("train.schedule"),
                      .lr = recipe.number("train.lr"),
                      .warmup = recipe.number("train.warmup"),
                      .step_epochs = recipe.number("train.step_epochs"),
                      .milestones = recipe.numbers("train.milestones"),
                      .gamma = recipe.number("train.gamma"),
                      .min_lr = recipe.number("train.min_lr")};
  options.delays = {recipe.number("debug.next_ms") * 1e-3, recipe.number("debug.forward_ms") * 1e-3,
                    recipe.number("debug.evaluate_ms") * 1e-3,
                    recipe.number("debug.log_ms") * 1e-3};
  return options;
}

/// Builds the trainer's schedule early, so that an invalid one fails before the run starts.
void check_schedule(const train::TrainOptions& options, std::uint64_t samples) {
  const auto window = static_cast<std::uint64_t>(options.batch) * options.accumulate;
  const std::uint64_t updates = (samples + window - 1) / window;
  static_cast<void>(train::Schedule(options.schedule, options.epochs * updates, updates));
}

/// Rejects an evaluation set that does not match the training task.
void check_evaluation(const Reader& train, const Reader& eval, const SampleSpec& sample,
                      const SampleSpec& eval_sample) {
  const auto& classes = train.info().classes;
  const auto& others = eval.info().classes;
  if (classes != others) {
    const auto [one, other] =
        std::mismatch(classes.begin(), classes.end(), others.begin(), others.end());
    throw DataError(
        fmt::format("{}: the {} and {} splits have different classes, first {} and {}",
                    train.info().path, train.info().split, eval.info().split,
                    one == classes.end() ? "none" : *one, other == others.end() ? "none" : *other),
        "labels are indices into the list of classes, so both splits need the same list");
  }
  if (sample.size != eval_sample.size || sample.channels != eval_sample.channels)
    throw UsageError(
        fmt::format("training sees samples of {}x{}, evaluation would see {}x{}", sample.size.width,
                    sample.size.height, eval_sample.size.width, eval_sample.size.height),
        "give evaluation a chain of its own: [[eval.augment]], or "
        "eval.augment+=random_crop{size=...}");
}

void print_result(const nlohmann::ordered_json& summary, const std::filesystem::path& directory) {
  if (verbosity().json) {
    print("{}\n", study::to_text(summary, 2));
  } else {
    print("{}records: {}\n", closing_table(summary), directory.string());
  }
}

bool is_ddp(const Recipe& recipe) { return recipe.text("train.strategy") == "ddp"; }

/// Returns the run's path. Ranks that share nothing (simulated devices) have records of their own.
std::filesystem::path run_path(const TrainArguments& arguments, const Recipe& recipe, int rank) {
  std::filesystem::path path = arguments.run.empty() ? study::make_run_folder(recipe.name())
                                                     : std::filesystem::path(arguments.run);
  if (!path.has_filename()) path = path.parent_path();  // DIR/ ends in a separator
  if (rank > 0) path += fmt::format(".rank{}", rank);
  return path;
}

/// Opens the run's directory. Rank 0 creates it; the others write beside its files.
study::RunDirectory open_directory(const TrainArguments& arguments, const Recipe& recipe,
                                   std::optional<Resume>& resume, const train::RankInfo& rank,
                                   train::Strategy& strategy) {
  const std::uint64_t steps = resume ? resume->position().steps : 0;
  if (rank.rank > 0 && is_ddp(recipe))
    return study::RunDirectory::of_rank(strategy.gather("")[0], rank.rank, steps);
  study::RunDirectory directory =
      resume ? resume->open(recipe)
             : study::RunDirectory(run_path(arguments, recipe, rank.rank), recipe.to_toml());
  if (!directory.moved_aside().empty())
    say(fmt::format("moved the earlier run in {} to {}", directory.path().string(),
                    directory.moved_aside().string()));
  strategy.gather(directory.path().string());
  return directory;
}

/// Returns the run to resume. Empty without --resume, and if --resume finds no run but a recipe is
/// given.
std::optional<Resume> find_resume(const TrainArguments& arguments) {
  if (!arguments.resume) return {};
  if (!arguments.recipe.empty() && !arguments.run.empty() && Resume::nothing_at(arguments.run)) {
    say(fmt::format("{}: nothing to resume: starting the run", arguments.run));
    return {};
  }
  return Resume(arguments.run, arguments.recipe);
}

/// Returns whether a resumed run is already complete.
bool ended_before(Resume& resume, const train::TrainOptions& training, const LoaderOptions& options,
                  std::uint64_t samples) {
  const std::uint64_t in_epoch = batches_per_epoch(options, samples);
  const std::uint64_t all = in_epoch * training.epochs;
  return resume.finished(
      training.steps > 0 ? std::min(training.steps, all) : all,
      options.drop_last ? in_epoch * static_cast<std::uint64_t>(options.batch) : samples);
}

/// Ends a rank because of another rank's failure or an interrupt.
[[noreturn]] void leave(const Error& error) {
  print_error(error);
  _exit(static_cast<int>(error.exit()));
}

Exit say_finished(const std::filesystem::path& run, int rank) {
  if (rank > 0) return Exit::done;
  say(fmt::format(
      "{} has finished; to continue it, raise the number of epochs or steps, for example with "
      "train.epochs=N",
      run.string()));
  try {
    print_result(study::read_json(run / "summary.json"), run);
  } catch (const nlohmann::json::exception&) {
    throw DataError(fmt::format("{} is damaged", (run / "summary.json").string()),
                    "restore it from a copy, or move it away: the run then evaluates once more");
  }
  return Exit::done;
}

Exit train(const TrainArguments& arguments, const ProgramStart& start) {
  LeaveOnInterrupt beginning;
  pipeline::SpanClock spans(start.ticks);
  const std::unique_ptr<pipeline::Timeline> timeline = arguments.trace.start(start);
  if (timeline != nullptr) spans.record_to(&timeline->trainer());
  std::optional<Resume> resume = find_resume(arguments);
  Recipe recipe = load_recipe(resume ? resume->recipe() : arguments.recipe);
  const train::RankInfo rank = rank_of(recipe);
  if (resume) {
    resume->take_up(rank.rank == 0 || !is_ddp(recipe));
    recipe = resume->checked(std::move(recipe));
  }
  recipe = with_ops(std::move(recipe), rank.world);
  if (rank.rank > 0 && is_ddp(recipe))
    verbosity() = {.quiet = true, .verbose = false, .json = false};
  if (is_ddp(recipe)) allow_descriptors(rank.world);
  if (rank.world > 1 && arguments.hash)
    throw UsageError("--hash with several ranks: each rank sees only its part of the batches",
                     "use millrace bench --hash, or train.strategy=single");
  const std::shared_ptr<const Reader> reader = open_data(recipe, recipe.text("data.split"));
  const auto plan = make_plan(recipe, recipe.augment(), *reader);
  LoaderOptions options = loader_options(recipe, emulated_storage(recipe), rank.rank, rank.world);
  options.epochs = static_cast<std::uint64_t>(recipe.integer("train.epochs"));
  train::TrainOptions training = train_options(recipe);
  if (timeline != nullptr) training.device_track = &timeline->device();
  training.batch = options.batch;
  if (resume && ended_before(*resume, training, options, reader->info().count))
    return say_finished(arguments.run, rank.rank);
  if (resume) training.from = resume->position();
  options.first_batch = training.from.steps;

  // Rejects invalid settings now, before the training and before a folder is touched.
  check_batch(options, reader->info());
  check_schedule(training, reader->info().count);
  if (!resume && !arguments.run.empty() && (rank.rank == 0 || !is_ddp(recipe)))
    study::RunDirectory::check(run_path(arguments, recipe, rank.rank));
  std::shared_ptr<const Reader> eval_reader;
  std::shared_ptr<const augment::Plan> eval_plan;
  if (!is_simulated(recipe)) {
    eval_reader = open_data(recipe, recipe.text("eval.split"), reader->info().classes.size());
    eval_plan = make_plan(recipe, recipe.eval_augment(), *eval_reader);
    check_evaluation(*reader, *eval_reader, plan->output(), eval_plan->output());
  }
  const train::RankHooks hooks{
      .interrupted = &interrupted(), .watched = [&beginning] { beginning.end(); }, .leave = leave};
  const std::unique_ptr<train::Strategy> strategy =
      make_strategy(recipe, *reader, plan->output(), rank, hooks);

  if (resume && resume->checkpoint()) strategy->restore(*resume->checkpoint());

  beginning.end();  // from here on there are records to complete
  study::RunDirectory directory = open_directory(arguments, recipe, resume, rank, *strategy);
  // Ranks agree on where to stop, and the batches of an open optimiser step are completed: the
  // trainer does both.
  const std::atomic<bool>* const stop =
      !is_ddp(recipe) && training.accumulate == 1 ? &interrupted() : nullptr;
  options.stop = stop;
  std::atomic<std::uint64_t> failed{directory.quarantined()};
  Recorder recorder(directory, recipe, reader->info(), arguments.hash, *strategy, training.from,
                    rank.rank == 0 || !is_ddp(recipe));
  const auto quarantine_of = [&](const std::string& split) {
    return [&directory, &failed, &recorder, split](const Failure& failure) {
      failed.fetch_add(1);
      directory.quarantine({{"split", split},
                            {"sample", failure.sample},
                            {"epoch", failure.epoch + 1},
                            {"position", failure.position},
                            {"step", recorder.steps() + (split == "train" ? 1 : 0)},
                            {"path", failure.name},
                            {"reason", failure.reason}});
    };
  };
  options.quarantine = quarantine_of(reader->info().split);
  std::shared_ptr<pipeline::LoaderTracks> eval_tracks;
  if (timeline != nullptr) {
    options.timeline = timeline->add_loader("train", options.workers, options.io_threads);
    if (eval_reader != nullptr)
      eval_tracks = timeline->add_loader("eval", options.workers, options.io_threads);
    if (options.storage != nullptr) options.storage->record_to(timeline->shared_storage());
  }
  options.held = strategy->batches_held();
  options.memory = strategy->slot_memory();
  Loader loader(reader, plan, options);
  say(fmt::format("{}: {} {} samples, batch {}, {}, {} on {}; records in {}", recipe.name(),
                  with_commas(static_cast<double>(reader->info().count)), reader->info().split,
                  options.batch, threads_text(options),
                  is_simulated(recipe) ? "no model" : recipe.text("model.name"), strategy->device(),
                  directory.path().string()));

  std::optional<AutoWorkers> auto_workers;
  if (has_auto_workers(recipe))
    auto_workers.emplace(
        recorder, loader,
        AutoWorkersFacts{.options = options,
                         .samples = reader->info().count,
                         .cores = std::max(1, cores() / rank.local_world),
                         .device_threads = is_on_cpu(recipe) ? threads_of(recipe, rank) : 0},
        [&timeline, &options](int workers) {
          return timeline == nullptr ? nullptr
                                     : timeline->add_loader(fmt::format("train, {}", workers),
                                                            workers, options.io_threads);
        });
  train::TrainObserver& observer =
      auto_workers ? static_cast<train::TrainObserver&>(*auto_workers) : recorder;

  const auto make_eval_loader = [&]() -> std::unique_ptr<Loader> {
    if (eval_reader == nullptr) return nullptr;
    LoaderOptions eval_options =
        eval_loader_options(recipe, *eval_reader, options.storage, rank.rank, rank.world);
    eval_options.workers = loader.workers();
    eval_options.stop = &interrupted();  // ranks agree afterwards that it was interrupted
    eval_options.timeline = eval_tracks;
    eval_options.memory = options.memory;
    eval_options.quarantine = quarantine_of(eval_reader->info().split);
    return std::make_unique<Loader>(eval_reader, eval_plan, eval_options);
  };
  train::Trainer trainer(loader, *strategy, observer, spans, training, make_eval_loader,
                         interrupted());
  const bool has_model = strategy->parameter_count() > 0;
  train::UtilizationSampler sampler(strategy->bus_id());
  std::exception_ptr failure;  // records are written after a failure too
  std::string reason;
  try {
    trainer.run();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    reason = error.what();
    strategy->end(reason);  // may end the process on behalf of the rank that failed first
  }
  const train::TrainResult& result = trainer.result();
  const std::optional<train::Utilization> utilization = sampler.stop();

  spans.enter(pipeline::Span::teardown);
  options.workers = loader.workers();
  TrainFacts facts{recipe,
                   reader->info(),
                   strategy->device(),
                   strategy->parameter_count(),
                   threads_of(recipe, rank),
                   options,
                   loader.stats(),
                   failed.load(),
                   has_model && !(failure && is_ddp(recipe)) ? strategy->parameters_hash() : "",
                   recorder.digest(),
                   strategy->peak_device_bytes(),
                   0,
                   {},
                   training.from,
                   {},
                   utilization,
                   recorder.blame(spans.ticks())};
  spans.enter(pipeline::Span::teardown);  // last reading of the clock: all records end here
  facts.wall_s = static_cast<double>(base::Clock::steady_ns() - start.ns) * 1e-9;
  facts.spans = spans.ticks();
  try {
    trainer.close();
    facts.device_time = trainer.device_time();
    recorder.close();
    if (timeline != nullptr)
      arguments.trace.finish(*timeline,
                             timeline->device().records().empty() ? "" : strategy->device(),
                             directory.path() / "timeline.json", rank.rank);
    auto summary_json = summary_of(facts, result);
    if (auto_workers) summary_json["auto_workers"] = auto_workers->record();
    if (failure) summary_json["error"] = reason;
    if (is_ddp(recipe) && !failure) add_ranks(summary_json, rank, *strategy);
    if (!failure) strategy->end({});
    if (rank.rank == 0 || !is_ddp(recipe)) directory.summary(summary_json);
    if (rank.rank == 0 && !failure) print_result(summary_json, directory.path());
  } catch (const Error&) {
    if (!failure) throw;  // otherwise the first error is the one to report
  }
  if (failure) std::rethrow_exception(failure);
  if (result.interrupted)
    throw Error(Exit::interrupted,
                fmt::format("interrupted after step {}: the records so far are in {}", result.steps,
                            directory.path().string()),
                has_model && result.steps > 0
                    ? fmt::format("continue with: millrace train --resume --run {}",
                                  directory.path().string())
                    : "");
  return Exit::done;
}

}  // namespace

void add_train(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand(
      "train", "train and evaluate a model, and record where each step's time goes");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("recipe", arguments->recipe,
                      "[RECIPE] [key=value ...]: a TOML file or a shipped "
                      "recipe's name, then overrides");
  command->add_option("--run", arguments->run, "run directory (default: runs/RECIPE-DATE-TIME)");
  command->add_flag("--hash", arguments->hash,
                    "hash every batch; the result equals that of bench --hash");
  command->add_flag("--resume", arguments->resume,
                    "continue the run in --run DIR from its last checkpoint");
  arguments->trace.add_to(*command, "timeline.json in the run's directory");
  add_common(*command);
  command->footer(
      "Example:\n  millrace train mnist-lenet data.path=data/digits loader.workers=1 "
      "train.epochs=3 --run runs/first\n"
      "  millrace train --resume --run runs/first");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart& start) { return train(*arguments, start); };
  });
}

}  // namespace millrace::tools
