// Records of a training run: the hash of its batches, its trace, its results, its position, and
// what follows it while it goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "measure/spans.h"
#include "measure/step_record.h"
#include "measure/timeline.h"
#include "measure/wait_breakdown.h"
#include "millrace/loader.h"
#include "millrace/recipe.h"
#include "strategies/control/rank.h"
#include "strategies/trainer/checkpoint.h"
#include "strategies/trainer/device_accounting.h"
#include "strategies/trainer/strategy.h"
#include "strategies/trainer/trainer.h"
#include "study/records/event_file.h"
#include "study/records/run_directory.h"
#include "study/records/summary.h"
#include "study/records/update_times.h"
#include "tools/terminal/program.h"
#include "tools/terminal/terminal.h"
#include "tools/training/provenance.h"

struct XXH3_state_s;

namespace CLI {
class App;
}

namespace millrace::tools {

/// xxh3 hash over batches: every output byte, then every label and target, batch after batch in
/// order.
class BatchHash {
 public:
  BatchHash();
  void add(const Batch& batch);
  /// Returns 16 hex digits.
  std::string digest() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

/// The option --trace: the timeline of a run, written for ui.perfetto.dev.
class TraceArgument {
 public:
  /// Adds the option.
  void add_to(CLI::App& command);
  /// Returns null if no trace was asked for. Throws UsageError for a name that does not end in
  /// .json.
  std::unique_ptr<measure::Timeline> start(const ProgramStart& start) const;
  /// Writes the trace. A rank > 0 puts its number before the .json. `device` names a simulated
  /// device; otherwise empty.
  void finish(const measure::Timeline& timeline, const std::string& device, int rank) const;

 private:
  std::string file_;  ///< empty: no trace
};

// Turns a training run into records: metrics.jsonl, summary.json, the closing table.

/// Facts of a summary besides the trainer's result.
struct TrainFacts {
  const Recipe& recipe;
  const DatasetInfo& dataset;
  const train::DeviceReport& device;
  std::uint64_t parameters = 0;
  int threads = 0;
  const LoaderOptions& options;
  LoaderStats loader;
  std::uint64_t failed = 0;  ///< samples of training and evaluation
  std::string parameters_hash;
  std::string batch_hash;  ///< empty without --hash
  double wall_s = 0;       ///< from main() to the summary
  measure::SpanTicks spans{};
  train::Position from;  ///< position at which the run was resumed
  std::optional<train::DeviceTime> device_time;
  std::optional<train::Utilization> utilization;
  const measure::WaitBreakdown& blame;
  const study::UpdateTimes& updates;
  /// Share of the machine's CPU time that other programs and the hypervisor took while it trained,
  /// 0..1. Nothing where that is unknown, and with several ranks, which are others to each other.
  std::optional<double> others{};
};

nlohmann::ordered_json epoch_line(const train::EpochRecord& record, const DatasetInfo& dataset);
/// Returns the figures of a metrics.jsonl line that TensorBoard shows.
std::vector<study::Scalar> epoch_scalars(const nlohmann::ordered_json& line);
study::Summary summary_of(const TrainFacts& facts, const train::TrainResult& result);
/// Adds each rank's facts, by rank, and their sums. All ranks must call it.
void add_ranks(study::Summary& summary, const train::RankInfo& rank, train::Ranks& ranks);
/// Returns the summary for people: where the time went, then the model's quality.
std::string closing_table(const study::Summary& summary);

/// Returns loss, top-1, top-5 and per-class accuracy of an evaluation.
nlohmann::ordered_json to_json(const train::Evaluation& evaluation,
                               const std::vector<std::string>& classes);
/// Returns the accuracies of a summary's per_class. Of more than ten classes returns the ten with
/// the lowest accuracy, worst first.
study::Named<double> worst_classes(study::Named<double> per_class);
/// Returns a number, or NaN if the JSON holds null, as it does for a diverged model.
double number_in(const nlohmann::ordered_json& json, const char* key);
/// Returns "2 workers, 4 I/O threads".
std::string threads_text(const LoaderOptions& options);
/// Returns the counts of data.cache=cold: proven and resident reads.
study::ColdRecord cold_record(const ColdCounts& counts);
/// Returns what fetching remote archives came to, and how it divides `storage_s`, the wait
/// breakdown's part: in proportion to the `read_s` seconds that threads spent reading, of which
/// what was neither first byte, transfer nor retry is cache.
study::RemoteRecord remote_record(double storage_s, double read_s);
/// Returns that record's JSON in one line for people.
std::string remote_text(const nlohmann::ordered_json& remote);
/// Returns the process's peak memory so far, in bytes.
std::uint64_t peak_rss_bytes();

// position.json in a checkpoint's folder: the run's position, and the checksum of every file beside
// it, which detects flipped bits.

struct SavedPosition {
  train::Position position;
  std::string simd;  ///< SIMD level of the writer; empty: not recorded
};

/// Writes it last, after all other files. Throws RunError.
void save_position(const train::Position& position, const std::filesystem::path& folder);

/// Reads the position. Throws DataError with the file that is damaged or missing. Accepts
/// checkpoints from before there were checksums.
SavedPosition read_position(const std::filesystem::path& folder);

/// Throws DataError if `file` belongs to a checkpoint with another checksum for it.
void check_checksum(const std::filesystem::path& file);

/// Resumes a training run from its last checkpoint (contract Exact resumption).
class Resume {
 public:
  /// `run` is the directory of a run that has begun. `texts` are the arguments "[RECIPE] [key=value
  /// ...]"; without a RECIPE the run's own config.toml applies. Throws UsageError if there is no
  /// such run.
  Resume(std::filesystem::path run, std::vector<std::string> texts);

  /// Returns whether there is no run at `run`.
  static bool nothing_at(const std::filesystem::path& run);

  /// Returns the arguments for load_recipe().
  const std::vector<std::string>& recipe() const { return texts_; }
  /// Throws UsageError if the recipe that was loaded from them reaches outside of a run which may
  /// be a stranger's (tools/training/provenance.h).
  void require_granted(const Recipe& recipe) const;
  /// Finds the checkpoint. `alone`: locks the run first, as all processes except ranks other than 0
  /// do. Throws UsageError if the run is still going, DataError for a damaged checkpoint.
  void take_up(bool alone);
  /// Returns the recipe to continue with; model.ops=auto keeps the ops that the run began with.
  /// Throws UsageError with the keys that would change the training.
  Recipe checked(Recipe recipe) const;
  /// Returns the checkpoint; empty if the run ended before its first one and begins again.
  const std::optional<std::filesystem::path>& checkpoint() const { return checkpoint_; }
  const train::Position& position() const { return position_; }
  /// Returns whether the run has taken all of its `steps` and finished. Lets a run killed between
  /// its last step and its summary evaluate again; `epoch_samples` is the size of an epoch.
  /// Call it before open().
  bool finished(std::uint64_t steps, std::uint64_t epoch_samples);
  /// Returns the run's directory, cut back to the checkpoint. Call it once, after take_up(true).
  /// Warns if the checkpoint was written at another SIMD level.
  study::RunDirectory open(const Recipe& recipe);

 private:
  std::filesystem::path run_;
  std::vector<std::string> texts_;
  std::optional<Provenance> provenance_;  ///< where the run's own config.toml applies
  std::optional<study::RunLock> lock_;
  std::optional<std::filesystem::path> checkpoint_;
  train::Position position_;
  std::string simd_;  ///< SIMD level of the checkpoint's writer; empty: not recorded
};

/// Records a training run in its directory and shows its progress.
class Recorder final : public train::TrainObserver {
 public:
  /// All arguments must outlive it. `hash`: hash every batch. `from`: position of the resumed run.
  Recorder(study::RunDirectory& directory, const Recipe& recipe, const DatasetInfo& dataset,
           bool hash, train::TrainingState& state, const train::Position& from, bool first_rank);

  void batch(const Batch& batch, base::Clock::Ticks load) override;
  void progress(const train::TrainProgress& now) override;
  void step(const measure::StepRecord& record) override;
  void epoch(const train::EpochRecord& record) override;
  void checkpoint(const train::Position& position, const measure::StepRecord& open,
                  bool best) override;
  void finish_checkpoint() override { writer_.wait(); }

  /// Closes the tables after the last step. The last checkpoint must be finished.
  void close();
  /// Returns the hash of the batches so far; empty without `hash`.
  std::string digest() const { return hash_ ? hash_->digest() : ""; }
  /// Returns the wait breakdown of a run whose spans are `spans` so far.
  const measure::WaitBreakdown& blame(const measure::SpanTicks& spans);
  /// Returns the updates of this process's steps. Complete after the trainer has closed.
  const study::UpdateTimes& updates() const { return updates_; }
  /// Returns the steps of the whole run so far.
  std::uint64_t steps() const { return steps_; }
  /// Returns this process's checkpoints: their number, and the seconds that their writing took
  /// beside the training. The last one must be finished.
  study::CheckpointsRecord checkpoints() const;

 private:
  study::RunDirectory& directory_;
  const Recipe& recipe_;
  const DatasetInfo& dataset_;
  train::TrainingState& state_;
  std::optional<BatchHash> hash_;
  std::optional<study::EventFile> events_;  ///< only with train.tensorboard
  ProgressLine line_;
  double busy_before_ = 0;
  measure::WaitBreakdown breakdown_;
  study::UpdateTimes updates_;
  base::Clock::Ticks epochs_load_ = 0;  ///< all epochs so far
  measure::PartTicks blamed_before_{};  ///< sums at the start of this epoch
  std::uint64_t steps_;
  bool first_rank_;                 ///< rank 0, which alone writes more than its own rows
  train::CheckpointWriter writer_;  ///< last member: its thread uses the others' files
};

}  // namespace millrace::tools
