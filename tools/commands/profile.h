// Parts of millrace profile: demands of loading, the cost model, its runs, and its results.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "millrace/loader.h"
#include "millrace/recipe.h"
#include "predict/loader_replay.h"
#include "predict/verification.h"
#include "study/analysis/bound.h"
#include "study/analysis/conclusion.h"
#include "study/analysis/whatif.h"
#include "study/records/summary.h"
#include "tools/commands/profile_packing.h"

namespace millrace::tools {

// Measures what loading demands, in this process with the loader alone: no device, and no storage
// to wait for. Takes CPU time, which a busy machine changes little.

/// One measurement of a loader that never waits for its consumer.
struct ProbeFigures {
  double cpu_s = 0;  ///< CPU seconds per sample, all threads together
  /// Parts of cpu_s, in proportion to the stages' shares of the threads' time.
  double read_part = 0, decode_part = 0, augment_part = 0;
  double take_s = 0;  ///< the consumer's CPU seconds per batch (with workers)
  double spread = 0;  ///< relative deviation of a sample's demand, estimated from batches
                      ///< (workers=0)
};

class LoaderProbe {
 public:
  /// Throws what opening data and compiling the chain throw.
  LoaderProbe(const Recipe& recipe, std::shared_ptr<const Reader> reader);

  /// Runs for at least `seconds`, and to the end of an epoch if epochs are short, so that every
  /// sample takes part. The consumer sleeps `pause_s` after each batch, as it does while a device
  /// works: a core that was idle runs the next batch more slowly. The sleep is not counted.
  ProbeFigures measure(int workers, double seconds, double pause_s = 0) const;

  /// Returns the shape and type of the samples that it makes.
  const SampleSpec& output() const { return transform_->output(); }

  /// Returns the part of a recipe that loading depends on: recipes with equal text need one probe.
  static std::string key_of(const Recipe& recipe);

 private:
  std::shared_ptr<const Reader> reader_;
  std::shared_ptr<const Transform> transform_;
  LoaderOptions options_;
};

/// Returns sizes in bytes of up to 1,024 samples, spread evenly over the set.
std::vector<double> sample_sizes(const Reader& reader);

/// Returns relative demands with a mean of 1 and the given spread, for the replay: lognormal, like
/// the sizes of photos. Empty without a spread.
std::vector<double> demand_weights(double spread);

/// Returns the seconds from a wake-up call until the thread runs: half of a round trip between two
/// threads.
double wake_up_s();

// Cost model of a recipe: the replay's input from the recipe's settings and demands measured once.

/// Measured demand of loading, for one LoaderProbe::key_of().
struct LoaderDemand {
  study::StageDemand stages;
  double inline_s = 0;  ///< seconds per sample, on the trainer's own thread
};

class ProfileModel {
 public:
  /// With `some`, samples of `reader` in memory are what the loader's probes read, because a
  /// request for each of `reader` costs what is in `requests`.
  ProfileModel(const Recipe& recipe, std::shared_ptr<const Reader> reader,
               std::shared_ptr<const Reader> some = {}, const RequestCost& requests = {});

  /// Adds a recipe to be predicted, whose loader must be probed too.
  void add(const Recipe& recipe);
  /// Adds a way to pack samples: `packed` holds some of the set's samples packed so, `plain` the
  /// same ones as they are.
  void add(const std::string& packing, const Recipe& recipe, std::shared_ptr<const Reader> packed,
           std::shared_ptr<const Reader> plain);
  /// Returns how many measurements probe() makes in `rounds` rounds.
  std::size_t probes(int rounds) const;
  /// Measures everything added, in `rounds` interleaved rounds. `idle_s`: how long the trainer's
  /// thread sleeps per step while the device works; a loader without workers runs after that sleep.
  void probe(double seconds, int rounds, double idle_s);

  /// Sets the CPU threads that the device keeps busy; 0: it takes no CPU.
  void set_device(int threads) { update_threads_ = threads; }
  /// Returns what the device's time per step depends on: the batch's size, the samples' shape, and
  /// the keys of model, training and output. `recipe` must have been added.
  std::string device_key(const Recipe& recipe) const;
  /// Sets the device's time per step for recipes with a device_key(), without other load.
  void set_update(const std::string& device_key, double seconds) {
    update_s_[device_key] = seconds;
  }
  /// Limits the trainer's cost of taking a batch to what a measured step took beyond its update.
  void limit_take(double seconds) { take_s_ = std::min(take_s_, std::max(0.0, seconds)); }
  /// Sets the trainer's own seconds per step, and an I/O thread's CPU seconds per sample (0:
  /// unknown).
  void set_host(double host_s, double io_read_s);
  /// Fits the slowdown of updates beside a busy loader, so that the replay of `recipe` has the
  /// measured update.
  void fit_crowding(const Recipe& recipe, double measured_update_s);

  predict::ReplayInput input(const Recipe& recipe) const;
  predict::ReplayInput input(const Recipe& recipe, const study::Change& change) const;
  predict::ReplayInput input(const Recipe& recipe, const LoaderDemand& demand) const;
  const LoaderDemand& demand(const Recipe& recipe) const;
  /// Returns the workers' StageDemand for `recipe`.
  const study::StageDemand& stages(const Recipe& recipe) const { return demand(recipe).stages; }

  double crowding_stage() const { return crowding_stage_; }
  double crowding_update() const { return crowding_update_; }
  double spread() const { return spread_; }
  /// Returns the relative half width of the 90% interval of the demands: the median of five rounds
  /// lies between the smallest and the largest with a probability of 94%.
  double demand_error() const { return demand_error_; }
  double wake_s() const { return wake_s_; }
  double take_s() const { return take_s_; }

 private:
  std::shared_ptr<const Reader> reader_, probed_;
  RequestCost requests_;
  std::string base_key_;
  std::map<std::string, LoaderProbe> probes_;
  std::map<std::string, LoaderDemand> demands_;
  /// Key in demands_ of the samples as they are, by that of the packed ones.
  std::map<std::string, std::string> plain_of_;
  std::map<std::string, double> update_s_;  ///< by device_key()
  std::vector<double> sizes_, weights_;
  int update_threads_ = 0;
  double host_s_ = 0, io_read_s_ = 0, wake_s_ = 0, take_s_ = 0, spread_ = 0;
  double crowding_stage_ = 1, crowding_update_ = 1;
  double demand_error_ = 0;
};

// Results of a profile, as JSON and as text.

struct ProfileReport {
  std::string recipe;
  study::Summary summary;  ///< summary of the baseline's first run
  double baseline = 0;     ///< images/s of the median of these runs

  double crowding_stage = 1, crowding_update = 1, wake_s = 0, take_s = 0, spread = 0;
  study::Conclusion conclusion;                   ///< outcomes are ratios to the baseline
  predict::VerificationOrder order;               ///< what --verify runs: indices of outcomes
  std::optional<predict::Verification> verified;  ///< only with --verify, and once it has run
  int workers = 0, prefetch = 0;
  std::vector<std::string> remarks{};  ///< what runs of a change differ in besides its keys
  bool simulated = false;              ///< the device is
  double others = 0;  ///< largest share of the machine that other processes took during a run, 0..1
};

/// Returns predictions.json, which is written before anything is verified: the predictions, the
/// order of the runs that verify them, and the share of others above which a run is void.
nlohmann::ordered_json predictions_json(const ProfileReport& report);
/// Returns the baseline's summary, and bound, verdict, blame, ceilings, what_if, advice, model.
nlohmann::ordered_json profile_json(const ProfileReport& report);
std::string profile_text(const ProfileReport& report);

// Short `millrace train` children of a profile, and figures from their records.

struct RunLength {
  std::uint64_t warm_up = 0;  ///< steps that are not counted
  std::uint64_t steps = 0;    ///< counted steps
  std::uint64_t window = 20;  ///< steps per window
};

/// Returns a length of about `seconds`, to the nearest whole epoch if these are short.
RunLength run_length(double step_s, double seconds, int prefetch, std::uint64_t batches_per_epoch);

/// Length of a device's first run, which finds how long a step takes.
inline constexpr RunLength kShortRun{.warm_up = 20, .steps = 40};

/// Counts and lengths of what a profile measures.
struct ProfileWork {
  std::size_t probes = 0;   ///< measurements of a loader alone
  double probe_s = 0;       ///< seconds per probe
  std::size_t devices = 0;  ///< settings for which the device is run alone, twice each
  std::size_t baselines = 0;
  std::size_t verifications = 0;  ///< runs of --verify
  double run_s = 0;               ///< seconds that a run measures
  double start_s = 0;             ///< seconds until a program has opened the data set
};

/// Returns "about 12 s: 25 probes of the loader, 3 runs", and the runs of --verify if there are
/// any. The time is an estimate from these counts: before the first run, the time per step of a
/// model is a guess.
std::string work_text(const ProfileWork& work);

/// Figures over the counted steps.
struct RunFigures {
  /// Images/s over load + update. With five windows or more, the median window's, which excludes
  /// interruptions by other programs; with fewer, over all steps.
  double images_per_s = 0;
  double step_s = 0;                           ///< load + update of the median step
  double load_s = 0, update_s = 0, log_s = 0;  ///< seconds per step
  /// Share of the machine's CPU time during the child that other processes used or the hypervisor
  /// withheld, 0..1. NaN if the kernel does not report it.
  double others = 0;
  study::Summary summary;  ///< summary of the whole child
};

class ChildRuns {
 public:
  /// `recipe` holds the arguments [RECIPE] [key=value ...] of all children. Their records go below
  /// `folder`.
  ChildRuns(std::vector<std::string> recipe, std::filesystem::path folder);

  /// Runs a child. Throws the error that it ended with, and RunError if it was interrupted or left
  /// no records.
  RunFigures run(const std::string& name, const std::vector<std::string>& overrides,
                 const RunLength& length);
  int started() const { return started_; }

 private:
  std::vector<std::string> recipe_;
  std::filesystem::path folder_;
  int started_ = 0;
};

}  // namespace millrace::tools
