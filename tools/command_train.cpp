// millrace train: trains, evaluates, records.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>

#include "pipeline/suggest.h"
#include "strategies/checkpoint.h"
#include "strategies/simulated.h"
#include "strategies/torch_library.h"
#include "study/run_directory.h"
#include "tools/batch_hash.h"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/interrupt.h"
#include "tools/pipeline_setup.h"
#include "tools/rank_setup.h"
#include "tools/strategy_setup.h"
#include "tools/train_records.h"

namespace millrace {
namespace {

struct Arguments {
  std::vector<std::string> recipe;
  std::string run;
  bool hash = false;
};

/// Writes the run directory and shows progress.
class Recorder final : public TrainObserver {
 public:
  Recorder(RunDirectory& directory, const Recipe& recipe, const DatasetInfo& dataset, bool hash)
      : directory_(directory), recipe_(recipe), dataset_(dataset) {
    if (hash) hash_.emplace();
  }

  void batch(const Batch& batch) override {
    if (hash_) hash_->add(batch);
  }
  void step(const StepRecord& record) override { directory_.step(record); }

  void progress(const TrainProgress& now) override {
    const auto every = static_cast<std::uint64_t>(recipe_.integer("train.log_every"));
    if (verbosity().verbose && every > 0 && now.step % every == 0) {
      line_.clear();
      say(fmt::format("epoch {} step {}/{}{}", now.epoch, now.step_in_epoch, now.steps_in_epoch,
                      now.loss ? fmt::format(" loss {:.4f}", *now.loss) : ""));
    }
    if (!line_.due()) return;
    const SpanSeconds seconds(*now.ticks);
    const double busy = seconds.load + seconds.update;
    const double passed = busy - busy_before_;
    const double rate = passed > 0 ? static_cast<double>(now.images) / passed : 0;
    const double left = rate > 0 ? passed / static_cast<double>(now.step_in_epoch) *
                                       static_cast<double>(now.steps_in_epoch - now.step_in_epoch)
                                 : 0;
    line_.show(
        static_cast<double>(now.step_in_epoch), static_cast<double>(now.steps_in_epoch),
        fmt::format("epoch {}/{} step {}/{}  {} images/s{}  load {:.0f}%  {:.0f} s left", now.epoch,
                    recipe_.integer("train.epochs"), now.step_in_epoch, now.steps_in_epoch,
                    with_commas(rate), now.loss ? fmt::format("  loss {:.4f}", *now.loss) : "",
                    busy > 0 ? 100 * seconds.load / busy : 0, left));
  }

  void epoch(const EpochRecord& record) override {
    line_.clear();
    const auto line = epoch_line(record, dataset_);
    directory_.epoch(line);
    const SpanSeconds seconds(record.ticks);
    busy_before_ += seconds.load + seconds.update;
    const double busy = std::max(seconds.load + seconds.update, 1e-12);
    std::string text =
        fmt::format("epoch {}/{}  {:.2f} s  load {:.3f} s ({:.1f}%)  update {:.3f} s  {} images/s",
                    record.epoch, recipe_.integer("train.epochs"), seconds.total(), seconds.load,
                    100 * seconds.load / busy, seconds.update,
                    with_commas(static_cast<double>(record.images) / busy));
    if (line["train_loss"].is_number())
      text += fmt::format("  loss {:.4f}", number_in(line, "train_loss"));
    if (line.contains("top1"))
      text += fmt::format("  test loss {:.4f}  top-1 {:.2f}%", number_in(line, "test_loss"),
                          100 * number_in(line, "top1"));
    say(text);
  }

  std::string digest() const { return hash_ ? hash_->digest() : ""; }

 private:
  RunDirectory& directory_;
  const Recipe& recipe_;
  const DatasetInfo& dataset_;
  std::optional<BatchHash> hash_;
  ProgressLine line_;
  double busy_before_ = 0;
};

TrainOptions train_options(const Recipe& recipe) {
  TrainOptions options;
  options.epochs = static_cast<std::uint64_t>(recipe.integer("train.epochs"));
  options.steps = static_cast<std::uint64_t>(recipe.integer("train.steps"));
  options.eval_every = static_cast<std::uint64_t>(recipe.integer("eval.every"));
  options.delays = {recipe.number("debug.next_ms") * 1e-3, recipe.number("debug.forward_ms") * 1e-3,
                    recipe.number("debug.evaluate_ms") * 1e-3,
                    recipe.number("debug.log_ms") * 1e-3};
  return options;
}

/// An evaluation that would not be one of the same task.
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
        "labels are places in the list of classes: it must be the same");
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
    fmt::print("{}\n", to_text(summary, 2));
  } else {
    fmt::print("{}records: {}\n", closing_table(summary), directory.string());
  }
}

/// Each rank keeps records of its own.
std::filesystem::path run_path(const Arguments& arguments, const Recipe& recipe, int rank) {
  std::filesystem::path path =
      arguments.run.empty() ? new_run_path(recipe.name()) : std::filesystem::path(arguments.run);
  if (!path.has_filename()) path = path.parent_path();  // DIR/
  if (rank > 0) path += fmt::format(".rank{}", rank);
  return path;
}

Exit train(const Arguments& arguments, const ProgramStart& start) {
  SpanClock spans(start.ticks);
  const Recipe recipe = load_recipe(arguments.recipe);
  const std::shared_ptr<const Reader> reader = open_data(recipe, recipe.text("data.split"));
  const auto plan = make_plan(recipe, recipe.augment(), *reader);
  const RankInfo rank = rank_of(recipe);
  LoaderOptions options = loader_options(recipe, emulated_storage(recipe), rank.rank, rank.world);
  options.epochs = static_cast<std::uint64_t>(recipe.integer("train.epochs"));

  // All that can be refused is refused now, before the training and before a folder is touched.
  check_batch(options, reader->info());
  std::shared_ptr<const Reader> eval_reader;
  std::shared_ptr<const Plan> eval_plan;
  if (!is_simulated(recipe)) {
    eval_reader = open_data(recipe, recipe.text("eval.split"), reader->info().classes.size());
    eval_plan = make_plan(recipe, recipe.eval_augment(), *eval_reader);
    check_evaluation(*reader, *eval_reader, plan->output(), eval_plan->output());
  }
  const std::unique_ptr<Strategy> strategy = make_strategy(recipe, *reader, plan->output());

  RunDirectory directory(run_path(arguments, recipe, rank.rank), recipe.to_toml());
  if (!directory.moved_aside().empty())
    say(fmt::format("{} held an earlier run: it is now {}", directory.path().string(),
                    directory.moved_aside().string()));
  options.stop = &interrupted();
  std::atomic<std::uint64_t> failed{0};
  const auto quarantine_of = [&](const std::string& split) {
    return [&directory, &failed, split](const Failure& failure) {
      failed.fetch_add(1);
      directory.quarantine({{"split", split},
                            {"sample", failure.sample},
                            {"epoch", failure.epoch + 1},
                            {"position", failure.position},
                            {"path", failure.name},
                            {"reason", failure.reason}});
    };
  };
  options.quarantine = quarantine_of(reader->info().split);
  Loader loader(reader, plan, options);
  say(fmt::format("{}: {} {} samples, batch {}, {}, {} on {}; records in {}", recipe.name(),
                  with_commas(static_cast<double>(reader->info().count)), reader->info().split,
                  options.batch, threads_text(options),
                  is_simulated(recipe) ? "no model" : recipe.text("model.name"), strategy->device(),
                  directory.path().string()));

  Recorder recorder(directory, recipe, reader->info(), arguments.hash);
  const auto make_eval_loader = [&]() -> std::unique_ptr<Loader> {
    if (eval_reader == nullptr) return nullptr;
    LoaderOptions eval_options =
        eval_loader_options(recipe, *eval_reader, options.storage, rank.rank, rank.world);
    eval_options.stop = &interrupted();
    eval_options.quarantine = quarantine_of(eval_reader->info().split);
    return std::make_unique<Loader>(eval_reader, eval_plan, eval_options);
  };
  Trainer trainer(loader, *strategy, recorder, spans, train_options(recipe), make_eval_loader,
                  interrupted());
  const bool has_model = strategy->parameter_count() > 0;
  std::exception_ptr failure;  // the records are written all the same
  std::string reason;
  try {
    trainer.run();
    if (has_model && trainer.result().steps > 0) {
      spans.enter(Span::checkpoint);
      write_checkpoint(directory.path(), trainer.result().steps,
                       [&](const std::filesystem::path& folder) {
                         strategy->save(folder / "model.safetensors");
                       });
    }
  } catch (const std::exception& error) {
    failure = std::current_exception();
    reason = error.what();
  }
  const TrainResult& result = trainer.result();

  spans.enter(Span::teardown);
  TrainFacts facts{recipe,
                   reader->info(),
                   strategy->device(),
                   strategy->parameter_count(),
                   threads_of(recipe),
                   options,
                   loader.stats(),
                   failed.load(),
                   has_model ? strategy->parameters_hash() : "",
                   recorder.digest(),
                   strategy->peak_device_bytes(),
                   0,
                   {}};
  spans.enter(Span::teardown);  // the last look at the clock: all records end here
  facts.wall_s = static_cast<double>(Clock::steady_ns() - start.ns) * 1e-9;
  facts.spans = spans.ticks();
  try {
    trainer.close();
    auto summary_json = summary_of(facts, result);
    if (failure) summary_json["error"] = reason;
    directory.summary(summary_json);
    if (!failure) print_result(summary_json, directory.path());
  } catch (const Error&) {
    if (!failure) throw;  // else the first error is the one to tell
  }
  if (failure) std::rethrow_exception(failure);
  if (result.interrupted)
    throw Error(Exit::interrupted,
                fmt::format("interrupted after step {}: the records up to there are in {}",
                            result.steps, directory.path().string()),
                has_model && result.steps > 0 ? "the weights are in its checkpoints/last" : "");
  return Exit::done;
}

}  // namespace

void add_train(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand("train", "train, evaluate, record load/update/other");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("recipe", arguments->recipe,
                      "[RECIPE] [key=value ...]: a TOML file or a shipped "
                      "recipe's name, then changes to it");
  command->add_option("--run", arguments->run, "run directory (default: runs/RECIPE-DATE-TIME)");
  command->add_flag("--hash", arguments->hash, "hash every batch: the same as bench --hash gives");
  add_common(*command);
  command->footer(
      "Example:\n  millrace train mnist-lenet data.path=data/digits loader.workers=1 "
      "train.epochs=3");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart& start) { return train(*arguments, start); };
  });
}

}  // namespace millrace
