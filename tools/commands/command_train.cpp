// millrace train: trains, evaluates and records.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "augment/plan/plan_setup.h"
#include "base/available_cores.h"
#include "base/record_file.h"
#include "base/text.h"
#include "pipeline/loader/slot_memory.h"
#include "pipeline/readers/storage.h"
#include "pipeline/setup/data_setup.h"
#include "pipeline/setup/loader_setup.h"
#include "recipe/recipe_file.h"
#include "recipe/recipe_words.h"
#include "strategies/trainer/device_accounting.h"
#include "strategies/trainer/first_rank.h"
#include "strategies/trainer/strategy.h"
#include "strategies/trainer/torch_library.h"
#include "strategies/trainer/train_choices.h"
#include "study/analysis/machine.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "study/report/run_facts.h"
#include "tools/commands/commands.h"
#include "tools/commands/single_recipe.h"
#include "tools/launch/launch.h"
#include "tools/terminal/terminal.h"
#include "tools/training/archives.h"
#include "tools/training/auto_workers.h"
#include "tools/training/records.h"
#include "tools/training/setup.h"
#include "tools/training/train_setup.h"

namespace millrace::tools {
namespace {

/// The kernel counts the machine's CPU time in ticks of 10 ms: other programs' share of less than
/// this many seconds is not known.
constexpr double kShortestSample = 0.5;

struct TrainArguments {
  std::vector<std::string> recipe;
  std::string run;
  bool hash = false;
  bool resume = false;
  TraceArgument trace;
};

void print_result(const study::Summary& summary, const std::filesystem::path& directory) {
  if (verbosity().json) {
    print("{}\n", study::to_text(study::to_json(summary), 2));
  } else {
    print("{}records: {}\n", closing_table(summary), directory.string());
  }
}

/// Keeps a copy of a recipe of the user's own in the run, with which reports compare its keys.
void keep_recipe(const std::vector<std::string>& words, const std::filesystem::path& run) {
  const std::string recipe = recipe::recipe_words(words).recipe;
  const auto folders = recipe_folders();
  if (recipe.empty()) return;
  const std::filesystem::path file = recipe::find_recipe(recipe, folders);
  std::error_code missing;
  for (const std::filesystem::path& folder : folders)
    if (std::filesystem::equivalent(file.parent_path(), folder, missing)) return;
  study::write_derived_file(run / kOwnRecipe, base::read_record(file));
}

bool is_ddp(const Recipe& recipe) { return train::strategy_of(recipe) == train::StrategyKind::ddp; }

/// Returns the run's path. Ranks that share nothing (simulated devices) have records of their own.
std::filesystem::path run_path(const TrainArguments& arguments, const Recipe& recipe, int rank) {
  std::filesystem::path path = arguments.run.empty() ? study::make_run_folder(recipe.name())
                                                     : std::filesystem::path(arguments.run);
  if (!path.has_filename()) path = path.parent_path();  // DIR/ ends in a separator
  if (rank > 0) path += fmt::format(".rank{}", rank);
  return path;
}

/// Returns the run to resume. Empty without --resume, and if --resume finds no run but a recipe is
/// given.
std::optional<Resume> find_resume(const TrainArguments& arguments) {
  if (!arguments.resume) return {};
  if (!arguments.recipe.empty() && !arguments.run.empty() && Resume::nothing_at(arguments.run))
    return {};
  return Resume(arguments.run, arguments.recipe);
}

/// Ends a rank because of another rank's failure or an interrupt.
[[noreturn]] void leave(const Error& error) {
  print_error(error);
  _exit(static_cast<int>(error.exit()));
}

Exit say_finished(const std::filesystem::path& run, int rank) {
  if (rank > 0) return Exit::done;
  const study::Summary summary = study::read_summary(run / "summary.json");
  if (!summary.mistyped.empty())
    throw DataError(fmt::format("{} is damaged: {} has another type",
                                (run / "summary.json").string(), summary.mistyped),
                    "restore it from a copy, or move it away: the run then evaluates once more");
  const std::string stopped = study::early_stop_of(summary);
  say(fmt::format("{} has {}; to continue it, {}", run.string(),
                  stopped.empty() ? "finished" : stopped,
                  stopped.empty() ? "raise the number of epochs or steps, for example with "
                                    "train.epochs=N"
                                  : "raise train.early_stopping.patience, and train.epochs or "
                                    "train.steps if the run has reached them"));
  print_result(summary, run);
  return Exit::done;
}

/// One call of the command: a rank, or the launcher of its ranks. Members are in the order in which
/// they are made; later ones refer to earlier ones.
class TrainCommand {
 public:
  TrainCommand(const TrainArguments& arguments, const ProgramStart& start)
      : arguments_(arguments),
        start_(start),
        spans_(start.time.ticks),
        timeline_(arguments.trace.start(start)),
        resume_(find_resume(arguments)),
        recipe_(load_recipe_of(arguments)) {
    if (timeline_ != nullptr) spans_.record_to(&timeline_->trainer());
  }

  Exit run() {
    if (const int ranks = ranks_to_start(recipe_); ranks > 0) return start_ranks(ranks);
    become_rank();
    open_training_set();
    if (has_finished()) return say_finished(arguments_.run, rank_.rank);
    check_settings();
    open_evaluation_set();
    make_strategy();
    require_same_start();
    compare_archives();
    beginning_.end();  // from here on there are records to complete
    open_records();
    make_loader();
    train();
    return record();
  }

 private:
  Recipe load_recipe_of(const TrainArguments& arguments) const {
    if (!resume_) return load_single_recipe(arguments.recipe);
    Recipe recipe = load_single_recipe(resume_->recipe());
    resume_->require_granted(recipe);
    return recipe;
  }

  /// Returns whether this process keeps a run's records. Ranks of ddp share those of rank 0.
  bool keeps_records() const { return rank_.rank == 0 || !is_ddp(recipe_); }

  Exit start_ranks(int ranks) {
    if (resume_) resume_->checked(recipe_);  // refused once here, not by every rank
    beginning_.end();                        // the launcher passes interrupts on
    augment::require_divisible(recipe_, ranks);
    check_cuda_graphs(recipe_);
    allow_descriptors(ranks);
    return launch_ranks(ranks, start_.arguments);
  }

  /// Takes this process's place among the ranks, and the position of the run to resume.
  void become_rank() {
    rank_ = rank_of(recipe_);
    if (!keeps_records()) verbosity() = {.quiet = true, .verbose = false, .json = false};
    if (arguments_.resume && !resume_)
      say(fmt::format("{}: nothing to resume: starting the run", arguments_.run));
    if (resume_) {
      resume_->take_up(keeps_records());
      recipe_ = resume_->checked(std::move(recipe_));
    }
    recipe_ = with_ops(with_ranks(std::move(recipe_), rank_), rank_.world);
    if (is_ddp(recipe_)) allow_descriptors(rank_.world);
    if (rank_.world > 1 && arguments_.hash)
      throw UsageError("--hash with several ranks: each rank sees only its part of the batches",
                       "use millrace bench --hash, or train.strategy=single");
    augment::require_divisible(recipe_, rank_.world);
    if (rank_.rank == 0) warn_of_oversubscription(recipe_, rank_);
  }

  void open_training_set() {
    loading_ = load_strategy_ahead(recipe_, rank_);
    reader_ = open_data(recipe_, recipe_.text("data.split"), /*classes=*/0, stops_at());
    check_labels(*reader_);
    if (resume_) check_archives(arguments_.run, reader_->info(), !is_ddp(recipe_));
    plan_ = augment::make_training_plan(recipe_, *reader_);
    options_ = pipeline::loader_options(recipe_, pipeline::emulated_storage(recipe_), rank_.rank,
                                        rank_.world);
    options_.epochs = static_cast<std::uint64_t>(recipe_.integer("train.epochs"));
    training_ = train_options(recipe_);
    if (timeline_ != nullptr) training_.device_track = &timeline_->device();
    training_.batch = options_.batch;
    if (rank_.rank == 0) warn_of_idle_ranks(recipe_, rank_.world, std::max(1, plan_->group()));
  }

  /// Returns whether a resumed run is already complete. Otherwise sets where it continues.
  bool has_finished() {
    if (!resume_) return false;
    const std::uint64_t samples = epoch_samples(options_, reader_->info().count);
    const std::uint64_t in_epoch = batches_per_epoch(options_, reader_->info().count);
    const std::uint64_t all = in_epoch * training_.epochs;
    const bool stopped = in_epoch > 0 && resume_->position().steps % in_epoch == 0 &&
                         train::is_exhausted(resume_->position().stopping, training_.stopping);
    if (resume_->finished(
            stopped               ? resume_->position().steps
            : training_.steps > 0 ? std::min(training_.steps, all)
                                  : all,
            options_.drop_last ? in_epoch * static_cast<std::uint64_t>(options_.batch) : samples))
      return true;
    training_.from = resume_->position();
    options_.first_batch = training_.from.steps;
    return false;
  }

  /// Rejects invalid settings now, before the training and before a folder is touched.
  void check_settings() const {
    check_batch(options_, *reader_);
    check_schedule(training_, epoch_samples(options_, reader_->info().count));
    check_early_stopping(recipe_);
    if (resume_ || arguments_.run.empty()) return;
    if (keeps_records()) {
      study::RunDirectory::check(run_path(arguments_, recipe_, rank_.rank));
    } else {
      study::RunLock::require_free(run_path(arguments_, recipe_, 0));
    }
  }

  void open_evaluation_set() {
    if (!is_evaluated(recipe_)) return;
    eval_reader_ =
        open_data(recipe_, recipe_.text("eval.split"), reader_->info().classes.size(), stops_at());
    if (resume_) check_archives(arguments_.run, eval_reader_->info(), !is_ddp(recipe_));
    eval_plan_ = augment::make_plan(recipe_, recipe_.eval_augment(), *eval_reader_);
    check_evaluation(*reader_, *eval_reader_, plan_->output(), eval_plan_->output(),
                     recipe_.text("model.name"));
  }

  void make_strategy() {
    const auto watched = [this] {
      beginning_.end();
      tell_watched();
    };
    const train::RankHooks hooks{.interrupted = &interrupted(), .watched = watched, .leave = leave};
    if (loading_.valid()) loading_.wait();
    std::optional<Size> eval_size;
    if (eval_plan_ != nullptr) eval_size = eval_plan_->output().size;
    strategy_ = tools::make_strategy(recipe_, *reader_, plan_->output(), eval_size, rank_, hooks);
    if (resume_ && resume_->checkpoint()) strategy_->restore(*resume_->checkpoint());
  }

  /// Throws UsageError on every rank unless all of them continue from the same step: a host may
  /// lack the run's directory.
  void require_same_start() {
    if (!is_ddp(recipe_)) return;
    const auto all = strategy_->gather(resume_ ? fmt::format("step {}", training_.from.steps)
                                               : std::string("a new run"));
    const auto other = std::find_if(all.begin(), all.end(),
                                    [&](const std::string& start) { return start != all[0]; });
    if (other == all.end()) return;
    strategy_->end({});  // of all ranks: none of them has died
    throw UsageError(
        fmt::format("rank {} starts from {}, rank 0 from {}", other - all.begin(), *other, all[0]),
        "every host needs the run's directory under the same path");
  }

  /// Compares the contents of archives with what the run has read. Of several ranks, only rank 0
  /// reads them, which takes minutes for a large set: the others wait, and are not late.
  void compare_archives() {
    if (!resume_ || !is_ddp(recipe_)) return;
    try {
      train::do_on_first_rank(
          rank_.rank == 0,
          std::chrono::milliseconds(std::llround(1e3 * recipe_.number("train.timeout"))),
          [this](const std::string& mine) { return strategy_->gather(mine); },
          [this] {
            for (const auto& reader : {reader_, eval_reader_})
              if (reader != nullptr) check_archives(arguments_.run, reader->info(), true);
          });
    } catch (const Error&) {  // of all ranks: none of them has died
      strategy_->end({});
      throw;
    }
  }

  /// Opens the run's directory. Rank 0 creates it; the others write beside its files.
  study::RunDirectory open_directory() {
    const std::uint64_t steps = resume_ ? resume_->position().steps : 0;
    if (!keeps_records())
      return study::RunDirectory::of_rank(strategy_->gather("")[0], rank_.rank, steps);
    study::RunDirectory directory =
        resume_ ? resume_->open(recipe_)
                : study::RunDirectory(run_path(arguments_, recipe_, rank_.rank), recipe_.to_toml());
    if (!directory.moved_aside().empty())
      say(fmt::format("moved the earlier run in {} to {}", directory.path().string(),
                      directory.moved_aside().string()));
    strategy_->gather(directory.path().string());
    return directory;
  }

  void open_records() {
    directory_.emplace(open_directory());
    if (keeps_records()) {
      std::vector<DatasetInfo> sets{reader_->info()};
      if (eval_reader_ != nullptr && eval_reader_->info().split != sets[0].split)
        sets.push_back(eval_reader_->info());
      record_archives(directory_->path(), sets);
      if (!resume_) keep_recipe(arguments_.recipe, directory_->path());
    }
    failed_ = directory_->quarantined();
    recorder_.emplace(*directory_, recipe_, reader_->info(), arguments_.hash, *strategy_,
                      training_.from, keeps_records());
  }

  /// Returns the function that records a failed sample of a split.
  std::function<void(const Failure&)> quarantine_of(const std::string& split) {
    return [this, split](const Failure& failure) {
      failed_.fetch_add(1);
      directory_->quarantine({{"split", split},
                              {"sample", failure.sample},
                              {"epoch", failure.epoch + 1},
                              {"position", failure.position},
                              {"step", recorder_->steps() + (split == "train" ? 1 : 0)},
                              {"path", failure.name},
                              {"reason", failure.reason}});
    };
  }

  /// Returns where reading may end. Ranks agree on where to stop, and the batches of an open
  /// optimizer step are completed: the trainer does both.
  StopAt stops_at() const {
    const bool anywhere = !is_ddp(recipe_) && recipe_.integer("train.accumulate") == 1;
    return anywhere ? StopAt::once : StopAt::failure;
  }

  void make_loader() {
    options_.stop = stops_at() == StopAt::once ? &interrupted() : nullptr;
    options_.quarantine = quarantine_of(reader_->info().split);
    if (timeline_ != nullptr) {
      options_.timeline = timeline_->add_loader("train", options_.workers, options_.io_threads);
      if (eval_reader_ != nullptr)
        eval_tracks_ = timeline_->add_loader("eval", options_.workers, options_.io_threads);
      if (options_.storage != nullptr) options_.storage->record_to(timeline_->shared_storage());
    }
    options_.held = strategy_->batches_held();
    options_.memory = strategy_->slot_memory();
    eval_memory_ = std::make_shared<pipeline::KeptMemory>(options_.memory);
    loader_.emplace(reader_, plan_, options_);
    say(fmt::format("{}: {} {} samples, batch {}, {}, {} on {}; records in {}", recipe_.name(),
                    with_commas(static_cast<double>(reader_->info().count)), reader_->info().split,
                    options_.batch, threads_text(options_),
                    is_simulated(recipe_) ? "no model" : recipe_.text("model.name"),
                    strategy_->device(), directory_->path().string()));
    if (pipeline::has_auto_workers(recipe_)) choose_workers();
  }

  void choose_workers() {
    auto_workers_.emplace(
        *recorder_, *loader_,
        AutoWorkersFacts{.options = options_,
                         .samples = epoch_samples(options_, reader_->info().count),
                         .cores = std::max(1, base::available_cores() / rank_.local_world),
                         .device_threads = is_on_cpu(recipe_) ? threads_of(recipe_, rank_) : 0},
        [this](int workers) {
          return timeline_ == nullptr ? nullptr
                                      : timeline_->add_loader(fmt::format("train, {}", workers),
                                                              workers, options_.io_threads);
        });
  }

  std::unique_ptr<Loader> make_eval_loader() {
    if (eval_reader_ == nullptr) return nullptr;
    LoaderOptions options = pipeline::eval_loader_options(recipe_, *eval_reader_, options_.storage,
                                                          rank_.rank, rank_.world);
    options.workers = loader_->workers();
    options.stop = &interrupted();  // ranks agree afterwards that it was interrupted
    options.timeline = eval_tracks_;
    options.memory = eval_memory_;
    options.quarantine = quarantine_of(eval_reader_->info().split);
    return std::make_unique<Loader>(eval_reader_, eval_plan_, options);
  }

  void train() {
    train::TrainObserver& observer =
        auto_workers_ ? static_cast<train::TrainObserver&>(*auto_workers_) : *recorder_;
    trainer_.emplace(
        *loader_, *strategy_, observer, spans_, training_, [this] { return make_eval_loader(); },
        interrupted());
    train::UtilizationSampler sampler(strategy_->bus_id());
    const study::MachineSample before = study::sample_machine();
    const std::int64_t own_ns = base::Clock::process_cpu_ns();
    const std::int64_t begin_ns = base::Clock::steady_ns();
    try {
      trainer_->run();
    } catch (const std::exception& error) {
      failure_ = std::current_exception();
      reason_ = error.what();
      strategy_->end(reason_);  // may end the process on behalf of the rank that failed first
    }
    utilization_ = sampler.stop();
    const auto seconds_since = [](std::int64_t now, std::int64_t then) {
      return static_cast<double>(now - then) * 1e-9;
    };
    if (rank_.world > 1 || seconds_since(base::Clock::steady_ns(), begin_ns) < kShortestSample)
      return;
    const study::Noise noise = study::noise_between(
        before, study::sample_machine(), seconds_since(base::Clock::process_cpu_ns(), own_ns));
    if (std::isfinite(noise.others)) others_ = std::min(1.0, noise.others + noise.steal);
  }

  bool has_model() const { return strategy_->parameter_count() > 0; }

  TrainFacts facts() {
    spans_.enter(measure::Span::teardown);
    options_.workers = loader_->workers();
    TrainFacts facts{
        recipe_,
        reader_->info(),
        *strategy_,
        strategy_->parameter_count(),
        threads_of(recipe_, rank_),
        options_,
        loader_->stats(),
        failed_.load(),
        has_model() && !(failure_ && is_ddp(recipe_)) ? strategy_->parameters_hash() : "",
        recorder_->digest(),
        0,
        {},
        training_.from,
        {},
        utilization_,
        recorder_->blame(spans_.ticks()),
        recorder_->updates(),
        others_};
    const base::Clock::Reading end = base::Clock::read_both();
    spans_.enter(measure::Span::teardown, end.ticks);  // all records end here
    facts.wall_s = static_cast<double>(end.steady_ns - start_.time.steady_ns) * 1e-9;
    facts.spans = spans_.ticks();
    return facts;
  }

  void write_records(TrainFacts facts) {
    trainer_->close();
    facts.device_time = trainer_->device_time();
    recorder_->close();
    if (timeline_ != nullptr)
      arguments_.trace.finish(
          *timeline_, timeline_->device().records().empty() ? "" : strategy_->device(), rank_.rank);
    study::Summary summary = summary_of(facts, trainer_->result());
    summary.oversubscribed = is_oversubscribed(recipe_, rank_);
    summary.replica_images = strategy_->replica_samples();
    if (auto_workers_) summary.auto_workers = auto_workers_->record();
    if (has_model() && keeps_records()) summary.checkpoints = recorder_->checkpoints();
    if (failure_) summary.error = reason_;
    if (is_ddp(recipe_) && !failure_) add_ranks(summary, rank_, *strategy_);
    if (!failure_) strategy_->end({});
    if (keeps_records()) directory_->summary(study::to_json(summary));
    if (rank_.rank == 0 && !failure_) print_result(summary, directory_->path());
  }

  /// Writes the records, after a failure too, and returns or throws how the run ended.
  Exit record() {
    const TrainFacts all = facts();
    try {
      write_records(all);
    } catch (const Error&) {
      if (!failure_) throw;  // otherwise the first error is the one to report
    }
    if (failure_) std::rethrow_exception(failure_);
    const train::TrainResult& result = trainer_->result();
    if (result.interrupted)
      throw Error(Exit::interrupted,
                  fmt::format("interrupted after step {}: the records so far are in {}",
                              result.steps, directory_->path().string()),
                  has_model() && recipe_.boolean("train.checkpoints") && result.steps > 0
                      ? fmt::format("continue with: millrace train --resume --run {}",
                                    directory_->path().string())
                      : "");
    return Exit::done;
  }

  const TrainArguments& arguments_;
  const ProgramStart& start_;
  LeaveOnInterrupt beginning_;
  measure::SpanClock spans_;
  std::unique_ptr<measure::Timeline> timeline_;  ///< only with --trace
  std::optional<Resume> resume_;
  Recipe recipe_;
  train::RankInfo rank_;
  std::future<void> loading_;  ///< of LibTorch and the device, while the data sets are opened
  std::shared_ptr<const Reader> reader_, eval_reader_;  ///< eval_reader_: null without evaluation
  std::shared_ptr<const augment::Plan> plan_, eval_plan_;
  LoaderOptions options_;
  std::shared_ptr<pipeline::KeptMemory> eval_memory_;  ///< slots of all evaluations
  train::TrainOptions training_;
  std::unique_ptr<train::Strategy> strategy_;
  std::optional<study::RunDirectory> directory_;
  std::atomic<std::uint64_t> failed_{0};  ///< samples
  std::optional<Recorder> recorder_;
  std::shared_ptr<measure::LoaderTracks> eval_tracks_;
  std::optional<Loader> loader_;
  std::optional<AutoWorkers> auto_workers_;
  std::optional<train::Trainer> trainer_;
  std::optional<train::Utilization> utilization_;
  std::optional<double> others_;  ///< TrainFacts::others
  std::exception_ptr failure_;
  std::string reason_;  ///< text of failure_
};

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
  arguments->trace.add_to(*command);
  add_common(*command, kVerboseTraining);
  command->footer(
      "Example:\n  millrace train mnist-lenet data.path=data/digits loader.workers=1 "
      "train.epochs=3 --run runs/first\n"
      "  millrace train mnist-lenet data.path=data/digits train.strategy=ddp train.ranks=2\n"
      "  millrace train --resume --run runs/first");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart& start) {
      return TrainCommand(*arguments, start).run();
    };
  });
}

}  // namespace millrace::tools
