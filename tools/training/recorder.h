// Records a training run in its directory and shows its progress.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "millrace/recipe.h"
#include "strategies/trainer/trainer.h"
#include "study/analysis/update_times.h"
#include "study/analysis/wait_breakdown.h"
#include "study/records/run_directory.h"
#include "study/records/tensorboard.h"
#include "tools/terminal/console.h"
#include "tools/training/batch_hash.h"

namespace millrace::tools {

class Recorder final : public train::TrainObserver {
 public:
  /// All arguments must outlive it. `hash`: hash every batch. `from`: position of the resumed run.
  Recorder(study::RunDirectory& directory, const Recipe& recipe, const DatasetInfo& dataset,
           bool hash, train::Strategy& strategy, const train::Position& from, bool first_rank);

  void batch(const Batch& batch, base::Clock::Ticks load) override;
  void progress(const train::TrainProgress& now) override;
  void step(const pipeline::StepRecord& record) override;
  void epoch(const train::EpochRecord& record) override;
  void checkpoint(const train::Position& position, const pipeline::StepRecord& open,
                  bool best) override;

  /// Closes the tables after the last step.
  void close();
  /// Returns the hash of the batches so far; empty without `hash`.
  std::string digest() const { return hash_ ? hash_->digest() : ""; }
  /// Returns the wait breakdown of a run whose spans are `spans` so far.
  const study::WaitBreakdown& blame(const pipeline::SpanTicks& spans);
  /// Returns the updates of this process's steps. Complete after the trainer has closed.
  const study::UpdateTimes& updates() const { return updates_; }
  /// Returns the steps of the whole run so far.
  std::uint64_t steps() const { return steps_; }

 private:
  study::RunDirectory& directory_;
  const Recipe& recipe_;
  const DatasetInfo& dataset_;
  train::Strategy& strategy_;
  std::optional<BatchHash> hash_;
  std::optional<study::EventFile> events_;  ///< only with train.tensorboard
  ProgressLine line_;
  double busy_before_ = 0;
  study::WaitBreakdown breakdown_;
  study::UpdateTimes updates_;
  base::Clock::Ticks epochs_load_ = 0;  ///< all epochs so far
  study::PartTicks blamed_before_{};    ///< sums at the start of this epoch
  std::uint64_t steps_;
  bool first_rank_;  ///< rank 0, which alone writes more than its own rows
};

}  // namespace millrace::tools
