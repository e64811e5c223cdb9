// millrace profile: measures where the time goes, predicts the effect of changes, and verifies the
// predictions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "base/clock.h"
#include "base/number_text.h"
#include "pipeline/setup/data_setup.h"
#include "pipeline/setup/loader_setup.h"
#include "predict/interval.h"
#include "predict/rules.h"
#include "predict/verification.h"
#include "strategies/trainer/train_choices.h"
#include "study/analysis/statistics.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "study/sweep/confounders.h"
#include "study/sweep/sweep_pace.h"
#include "tools/commands/commands.h"
#include "tools/commands/profile.h"
#include "tools/commands/profile_candidates.h"
#include "tools/commands/profile_packing.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

struct ProfileArguments {
  std::vector<std::string> recipe;
  std::vector<std::string> changes;
  std::string run;
  std::string trace;
  bool verify = false;
  bool given = false;
  bool accept_noise = false;
  int blocks = 3;
  double seconds = 1;
};

/// Samples of the set that are packed to measure a packing.
constexpr std::uint64_t kPackedSamples = 1024;

/// Returns the arguments for one rank's device alone, if the recipe starts ranks of its own. Its
/// loader has the machine to itself, as the model assumes; the table predicts several ranks.
ProfileArguments on_one_device(ProfileArguments arguments) {
  if (ranks_to_start(load_recipe(arguments.recipe)) == 0) return arguments;
  say("the recipe starts ranks: one device is measured (train.strategy=single), and the table "
      "predicts 2 and 4 ranks");
  arguments.recipe.insert(arguments.recipe.end(), {"train.strategy=single", "train.ranks=0"});
  return arguments;
}

/// Variance of a ratio that --verify measures, in that of a run: the mean of two blocks, each of a
/// run of the change beside two of the baseline.
constexpr double kRatioVariance = (1 + 0.5) / 2;

/// Returns the relative half width of the 90% interval by Student's t of the values' geometric
/// mean; with `more`, of a figure beside it whose variance is `more` times that of a value.
double half_width(std::span<const double> values, double more = 0) {
  std::vector<double> logs;
  for (const double value : values) logs.push_back(std::log(value));
  const predict::Interval interval = predict::t_interval(logs, predict::kIntervalLevel);
  const double wider = std::sqrt(1 + more * static_cast<double>(values.size()));
  const double half = std::exp(wider * (interval.high - interval.mean)) - 1;
  return std::isfinite(half) ? half : 0;  // an update of 0 s
}

/// Returns the mean time of a step between its events on the device; 0 where it was not measured.
double device_step_s(const study::DevicePartsRecord& parts) {
  const double seconds = parts.forward_s.value_or(0) + parts.backward_s.value_or(0) +
                         parts.graph_s.value_or(0) + parts.step_s.value_or(0);
  const std::int64_t steps = parts.steps.value_or(0) + parts.graph_steps.value_or(0);
  return steps > 0 ? seconds / static_cast<double>(steps) : 0;
}

class Profile {
 public:
  Profile(const ProfileArguments& arguments, const ProgramStart& start)
      : arguments_(on_one_device(arguments)),
        recipe_(with_ops(load_recipe(arguments_.recipe))),
        simulated_(is_simulated(recipe_)),
        reader_(open_data(recipe_, recipe_.text("data.split"))),
        start_s_(static_cast<double>(base::Clock::steady_ns() - start.time.steady_ns) * 1e-9),
        path_(arguments.run) {}

  Exit run() {
    if (arguments_.given && arguments_.changes.empty())
      throw UsageError("--given without a --change: nothing to predict",
                       "name one: --change loader.workers=1");
    if (arguments_.accept_noise && !arguments_.verify)
      throw UsageError("--accept-noise without --verify: nothing is measured that noise could void",
                       "add --verify");
    if (!arguments_.trace.empty() && !arguments_.trace.ends_with(".json"))
      throw UsageError(fmt::format("--trace {}: the file name must end in .json", arguments_.trace),
                       "give --trace FILE.json");
    if (pipeline::has_auto_workers(recipe_))
      throw UsageError("profile: loader.workers=auto changes within the run",
                       "give a number; the profile's advice names the smallest sufficient one");
    if (recipe_.numbers("output.sizes").size() > 1)
      throw UsageError("profile: output.sizes changes within the run",
                       "profile one size after the other: output.sizes=[192] output.milestones=[]");
    if (train::strategy_of(recipe_) != train::StrategyKind::single)
      throw UsageError("profile: the model covers one device only, train.strategy=single",
                       "leave train.strategy out; the table includes predictions for N ranks");
    check_labels(*reader_);
    pin_threads();
    study::RunDirectory directory(
        path_.empty() ? study::make_run_folder("profile-" + recipe_.name()) : path_,
        recipe_.to_toml());
    path_ = directory.path();
    if (!directory.moved_aside().empty())
      say(fmt::format("moved the earlier profile in {} to {}", path_.string(),
                      directory.moved_aside().string()));
    open_model();
    candidates_ = CandidateList(arguments_.recipe, recipe_, reader_, probed_)
                      .list(arguments_.changes, arguments_.given, *model_);
    if (arguments_.verify) plan_verification();
    announce();
    calibrate();
    predict();
    const fs::path predictions = path_ / "predictions.json";
    study::write_file(predictions, study::to_text(predictions_json(report_), 2) + "\n");
    if (arguments_.verify) verify();
    directory.summary(profile_json(report_));
    if (verbosity().json) {
      print("{}\n", study::to_text(profile_json(report_), 2));
    } else {
      print("{}records: {}\n", profile_text(report_), path_.string());
    }
    return Exit::done;
  }

 private:
  /// Pins LibTorch's threads, which otherwise follow the workers: changing the workers would change
  /// both.
  void pin_threads() {
    if (simulated_) return;
    threads_ = threads_of(recipe_, rank_of(recipe_));
    fixed_.push_back(fmt::format("train.threads={}", threads_));
  }

  /// Requests are kept out of the probes: they would wait for the server.
  void open_model() {
    if (!reader_->info().requested) {
      probed_ = reader_;
      model_.emplace(recipe_, reader_);
      return;
    }
    const auto batch = static_cast<std::uint64_t>(recipe_.integer("loader.batch"));
    say("asking the server for some samples");
    probed_ = PackedSamples(*reader_, {}, std::max(PackedSamples::kMax, 4 * batch)).plain();
    if (probed_->info().count == 0)
      throw DataError(fmt::format("{}: no sample can be read", reader_->info().path));
    model_.emplace(recipe_, reader_, probed_, request_cost(*reader_, *probed_));
  }

  std::uint64_t batches_per_epoch(const Recipe& recipe) const {
    const LoaderOptions options = pipeline::loader_options(recipe, nullptr);
    return std::max<std::uint64_t>(1, millrace::batches_per_epoch(options, reader_->info().count));
  }

  RunLength length_for(const Recipe& recipe, double step_s) const {
    return run_length(step_s, arguments_.seconds,
                      static_cast<int>(recipe.integer("loader.prefetch")),
                      batches_per_epoch(recipe));
  }

  RunFigures run_child(const std::string& name, std::vector<std::string> overrides,
                       const RunLength& length) {
    overrides.insert(overrides.end(), fixed_.begin(), fixed_.end());
    RunFigures figures = runs_->run(name, overrides, length);
    report_.others = std::max(report_.others, figures.others);
    return figures;
  }

  /// Says what will be measured and about how long that takes.
  void announce() const {
    ProfileWork work;
    work.probes = model_->probes(kRounds);
    work.probe_s = kProbeSeconds;
    work.devices = devices().size();
    work.baselines = kBaselines;
    work.verifications = predict::planned_runs(report_.order);
    work.run_s = arguments_.seconds;
    work.start_s = start_s_;
    say(fmt::format("{}: {}; {}", recipe_.name(), base::counted(candidates_.size(), "change"),
                    work_text(work)));
  }

  void calibrate() {
    runs_.emplace(arguments_.recipe, path_ / "runs");
    say("probing the loader alone");
    // A longer sleep costs no more, and the probe would have too few batches.
    const double idle_s =
        simulated_ ? std::min(5e-3, recipe_.number("simulated.update_ms") * 1e-3) : 0;
    model_->probe(kProbeSeconds, kRounds, idle_s);

    double step_guess = recipe_.number("simulated.update_ms") * 1e-3;
    if (!simulated_) {
      model_->set_device(is_on_cpu(recipe_) ? threads_ : 0);
      for (const auto& [key, overrides] : devices()) {
        say(fmt::format(
            "the device alone, {}",
            overrides.empty() ? "as it is" : fmt::format("{}", fmt::join(overrides, " "))));
        std::vector<std::string> alone = overrides;
        alone.emplace_back("loader.workers=0");
        RunFigures figures = run_child("device", alone, kShortRun);
        const double step = figures.update_s + figures.load_s;
        figures = run_child(
            "device", alone,
            {.warm_up = kShortRun.warm_up,
             .steps = std::max<std::uint64_t>(
                 kShortRun.steps, static_cast<std::uint64_t>(arguments_.seconds / step))});
        // The host's update of a queued step ends with its launches.
        model_->set_update(key,
                           std::max(figures.update_s, device_step_s(figures.summary.device_parts)));
      }
      step_guess = predict::replay(model_->input(recipe_)).update_s;
    }
    say("the baseline");
    const predict::ReplayOutput guess = predict::replay(model_->input(recipe_));
    std::vector<std::string> traced;
    if (!arguments_.trace.empty()) traced = {"--trace", arguments_.trace};
    std::vector<double> walls, rates, steps, updates, logs, reads;
    for (std::size_t i = 0; i < kBaselines; ++i) {
      const std::int64_t begin = base::Clock::steady_ns();
      const RunFigures baseline =
          run_child("baseline", i == 0 ? traced : std::vector<std::string>(),
                    length_for(recipe_, std::max(step_guess, guess.load_s + guess.update_s)));
      walls.push_back(static_cast<double>(base::Clock::steady_ns() - begin) * 1e-9);
      rates.push_back(baseline.images_per_s);
      steps.push_back(baseline.step_s);
      updates.push_back(baseline.update_s);
      logs.push_back(baseline.log_s);
      reads.push_back(baseline.summary.loader_cpu_s.read.value_or(0) /
                      std::max(1.0, study::to_number(baseline.summary.images)));
      if (i == 0) {
        report_.summary = baseline.summary;
        baseline_others_ = baseline.others;
      }
    }
    model_->set_host(predict::median(logs), predict::median(reads));
    if (is_on_cpu(recipe_)) model_->fit_crowding(recipe_, predict::median(updates));
    model_->limit_take(predict::median(steps) - model_->input(recipe_).update_s);
    rate_error_ = half_width(rates, kRatioVariance);
    // A simulated update takes what it is told to.
    if (!simulated_) update_error_ = half_width(updates);
    report_.baseline = predict::median(rates);
    baseline_wall_s_ = predict::median(walls);
  }

  /// Returns the settings for which the device's step must be measured: of each
  /// ProfileModel::device_key(), the first change's.
  std::vector<std::pair<std::string, std::vector<std::string>>> devices() const {
    std::vector<std::pair<std::string, std::vector<std::string>>> all;
    if (simulated_) return all;
    all.emplace_back(model_->device_key(recipe_), std::vector<std::string>());
    for (const Candidate& one : candidates_) {
      std::string key = model_->device_key(one.recipe);
      if (std::none_of(all.begin(), all.end(),
                       [&](const auto& known) { return known.first == key; }))
        all.emplace_back(std::move(key), one.change.overrides);
    }
    return all;
  }

  void predict() {
    study::ProfileFacts facts;
    facts.input = model_->input(recipe_);
    const predict::ReplayOutput first = predict::replay(facts.input);
    base_length_ = length_for(recipe_, first.load_s + first.update_s);
    facts.input.warm_up = base_length_.warm_up;
    facts.input.steps = std::min<std::uint64_t>(base_length_.steps, kMaxSteps);
    for (Candidate& one : candidates_) {
      predict::ReplayInput with = model_->input(one.recipe, one.change);
      const predict::ReplayOutput guess = predict::replay(with);
      one.length = length_for(one.recipe, guess.load_s + guess.update_s);
      with.warm_up = one.length.warm_up;
      with.steps = std::min<std::uint64_t>(one.length.steps, kMaxSteps);
      facts.changes.push_back({one.change, std::move(with)});
    }
    for (const int ranks : {2, 4}) {
      if (arguments_.given) break;
      predict::ReplayInput with = facts.input;
      with.ranks = ranks;
      study::Change change;
      change.assumed = {fmt::format("ranks={}", ranks)};
      facts.changes.push_back({std::move(change), std::move(with)});
    }
    facts.demand = model_->stages(recipe_);
    facts.demand_error = std::hypot(model_->demand_error(), update_error_);
    facts.rate_error = rate_error_;
    facts.images_per_s = report_.baseline;
    facts.others = baseline_others_;
    facts.run_bound = report_.summary.bound.value_or("");
    facts.run_verdict = report_.summary.verdict.value_or("");
    report_.recipe = recipe_.name();
    report_.simulated = simulated_;
    report_.workers = facts.input.workers;
    report_.prefetch = facts.input.prefetch;
    report_.conclusion = study::conclude(facts);
    const double fit = report_.conclusion.demand_fit;
    if (std::abs(fit - 1) >= kNotedFit)
      report_.remarks.push_back(
          fmt::format("the demands of loading that the probes measured do not explain the measured "
                      "rate: the predictions scale them by {:.2f}",
                      fit));
    report_.crowding_stage = model_->crowding_stage();
    report_.crowding_update = model_->crowding_update();
    report_.wake_s = model_->wake_s();
    report_.take_s = model_->take_s();
    report_.spread = model_->spread();
  }

  void plan_verification() {
    std::vector<std::size_t> runnable;
    for (std::size_t i = 0; i < candidates_.size(); ++i)
      if (candidates_[i].change.runnable()) runnable.push_back(i);
    report_.order = predict::verification_order(
        runnable, arguments_.blocks, static_cast<std::uint64_t>(recipe_.integer("seed")));
  }

  /// Packs a sample of the set in each way that is measured.
  void pack_samples() {
    for (Candidate& one : candidates_) {
      if (!one.change.packing) continue;
      if (!packed_) packed_.emplace();
      const std::uint64_t most =
          std::max(kPackedSamples, 4 * static_cast<std::uint64_t>(recipe_.integer("loader.batch")));
      say(fmt::format("packing up to {} samples: {}", most, one.change.text()));
      one.packed = packed_->pack(recipe_, *one.change.packing, most);
    }
  }

  /// Fetches a remote set into the cache for the change that reads it from there.
  void fill_cache() const {
    for (const Candidate& one : candidates_) {
      if (!one.change.fetched) continue;
      say("fetching the set into data.remote.cache");
      const auto set = open_data(one.recipe, one.recipe.text("data.split"));
      Buffer buffer;
      for (std::uint64_t i = 0; i < set->info().count && !interrupted(); ++i) set->read(i, buffer);
    }
  }

  void verify() {
    pack_samples();
    fill_cache();
    const std::size_t planned = predict::planned_runs(report_.order);
    say(fmt::format(
        "verifying {} in {}: up to {}, about {}{}",
        base::counted(report_.order.front().size(), "change"),
        base::counted(arguments_.blocks, "block"), base::counted(planned, "run"),
        study::duration_text(static_cast<double>(planned) * baseline_wall_s_),
        arguments_.accept_noise
            ? ""
            : fmt::format("; up to half as many runs again where other programs take over {:.0f}% "
                          "of the machine",
                          100 * predict::kMaxOthers)));
    ProgressLine line;
    std::size_t done = 0;
    const auto run = [&](std::optional<std::size_t> change) {
      const std::string name = change ? candidates_[*change].change.text() : "baseline";
      if (line.due())
        line.show(static_cast<double>(done), static_cast<double>(std::max(planned, done + 1)),
                  name);
      RunFigures figures;
      if (change) {
        const Candidate& one = candidates_[*change];
        figures =
            run_child(name, one.change.packing ? one.packed : one.change.overrides, one.length);
      } else {
        figures = run_child(name, {}, base_length_);
      }
      ++done;
      if (change) add_remarks(*change, figures.summary);
      return predict::TimedRun{change, figures.images_per_s, figures.others};
    };
    std::set<std::size_t> once;  // they do not count
    for (const std::size_t change : report_.order.front())
      if (study::is_arithmetic(candidates_[change].change, simulated_)) once.insert(change);
    report_.verified.emplace(report_.order, run, arguments_.accept_noise, std::move(once));
    line.clear();
    for (const std::size_t change : report_.order.front()) {
      study::Outcome& outcome = report_.conclusion.outcomes[change];
      outcome.measured = report_.verified->ratio(change);
      if (arguments_.accept_noise) outcome.measured_interval = report_.verified->interval(change);
      if (!outcome.measured) outcome.disturbed = report_.verified->disturbed_ratio(change);
    }
  }

  /// Notes the settings in which a run of the change differs from the baseline besides its keys.
  void add_remarks(std::size_t change, const study::Summary& summary) {
    std::set<std::string> keys;
    for (const std::string& word : candidates_[change].change.overrides)
      keys.insert(word.substr(0, word.find_first_of("+=")));
    for (const study::Confounder& one :
         study::confounders({study::settings_in(study::to_json(report_.summary)),
                             study::settings_in(study::to_json(summary))},
                            keys)) {
      std::string remark =
          fmt::format("{}: {}", candidates_[change].change.text(), study::remark_on(one, keys));
      if (std::find(report_.remarks.begin(), report_.remarks.end(), remark) ==
          report_.remarks.end())
        report_.remarks.push_back(std::move(remark));
    }
  }

  static constexpr double kProbeSeconds = 0.3;
  static constexpr int kRounds = 5;
  static constexpr double kNotedFit = 0.05;  ///< how far from 1 a scaling of demands is noted
  static constexpr std::size_t kBaselines = 5;
  /// More steps do not improve a prediction.
  static constexpr std::uint64_t kMaxSteps = 400;

  const ProfileArguments arguments_;
  const Recipe recipe_;
  const bool simulated_;
  const std::shared_ptr<const Reader> reader_;
  std::shared_ptr<const Reader> probed_;  ///< what probes of the loader read
  const double start_s_;                  ///< from the program's start until the data set was open
  fs::path path_;
  int threads_ = 0;
  std::vector<std::string> fixed_;  ///< overrides that all runs share
  std::optional<ProfileModel> model_;
  std::optional<PackedFolder> packed_;
  std::optional<ChildRuns> runs_;
  std::vector<Candidate> candidates_;
  RunLength base_length_;
  double baseline_others_ = 0;  ///< share of the machine that others took during the first one
  double rate_error_ = 0;       ///< half_width() of a measured ratio, by the baselines' rates
  double update_error_ = 0;     ///< half_width() of a real device's update, by the baselines
  double baseline_wall_s_ = 0;  ///< of one baseline run, start of the program included
  ProfileReport report_;
};

}  // namespace

void add_profile(CLI::App& app, Command& chosen) {
  auto* command =
      app.add_subcommand("profile", "find what limits a run and predict what changes would give");
  auto arguments = std::make_shared<ProfileArguments>();
  command->add_option("recipe", arguments->recipe,
                      "[RECIPE] [key=value ...]: a TOML file or a shipped recipe's name, then "
                      "overrides");
  command->add_flag(
      "--verify", arguments->verify,
      "also run the changes that this machine can run, after writing the predictions");
  command
      ->add_option("--change", arguments->changes,
                   "predict this change too: \"key=value key=value\", or a way to pack the set, "
                   "pack=raw,short-side=256; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--given", arguments->given, "predict only the changes named by --change");
  command->add_flag("--accept-noise", arguments->accept_noise,
                    "with --verify: use runs that other programs disturbed, and mark the result");
  command->add_option("--trace", arguments->trace,
                      "write the baseline's timeline for ui.perfetto.dev to FILE.json");
  command
      ->add_option(
          "--blocks", arguments->blocks,
          "blocks of --verify (3); each runs every change once, between two runs of the baseline")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--seconds", arguments->seconds,
                   "approximate length of the measured part of each run (1)")
      ->check(CLI::Range(0.05, 3600.0));
  command->add_option("--run", arguments->run,
                      "directory (default: runs/profile-RECIPE-DATE-TIME)");
  add_common(*command);
  command->footer(
      "Example:\n  millrace profile mnist-lenet data.path=data/digits train.device=simulated "
      "simulated.update_ms=0.2 --verify");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart& start) { return Profile(*arguments, start).run(); };
  });
}

}  // namespace millrace::tools
