// Writes a training run into its directory and shows how far it has come.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "millrace/recipe.h"
#include "strategies/trainer/trainer.h"
#include "study/analysis/wait_breakdown.h"
#include "study/records/run_directory.h"
#include "study/records/tensorboard.h"
#include "tools/terminal/console.h"
#include "tools/training/batch_hash.h"

namespace millrace::tools {

class Recorder final : public train::TrainObserver {
 public:
  /// All must outlive it. `hash`: of every batch. `from`: where an earlier run is taken up.
  Recorder(study::RunDirectory& directory, const Recipe& recipe, const DatasetInfo& dataset,
           bool hash, train::Strategy& strategy, const train::Position& from, bool first_rank);

  void batch(const Batch& batch, base::Clock::Ticks load) override;
  void progress(const train::TrainProgress& now) override;
  void step(const pipeline::StepRecord& record) override;
  void epoch(const train::EpochRecord& record) override;
  void checkpoint(const train::Position& position, const pipeline::StepRecord& open,
                  bool best) override;

  /// Ends the tables, after the last step was told.
  void close();
  /// Of the batches so far; empty without `hash`.
  std::string digest() const { return hash_ ? hash_->digest() : ""; }
  /// Where load went, of a run that spent `spans` so far.
  const study::WaitBreakdown& blame(const pipeline::SpanTicks& spans);
  /// Steps of the whole run so far.
  std::uint64_t steps() const { return steps_; }

 private:
  study::RunDirectory& directory_;
  const Recipe& recipe_;
  const DatasetInfo& dataset_;
  train::Strategy& strategy_;
  std::optional<BatchHash> hash_;
  std::optional<study::EventFile> events_;  ///< with train.tensorboard
  ProgressLine line_;
  double busy_before_ = 0;
  study::WaitBreakdown breakdown_;
  base::Clock::Ticks epochs_load_ = 0;  ///< of all epochs so far
  study::PartTicks blamed_before_{};    ///< this epoch
  std::uint64_t steps_;
  bool first_rank_;  ///< which alone writes more than its own rows
};

}  // namespace millrace::tools
