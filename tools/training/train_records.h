// From a training run's numbers to its records: metrics.jsonl, summary.json, the closing table.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "millrace/loader.h"
#include "millrace/recipe.h"
#include "strategies/trainer/strategy.h"
#include "strategies/trainer/trainer.h"
#include "strategies/trainer/utilization.h"
#include "study/analysis/wait_breakdown.h"
#include "study/records/tensorboard.h"

namespace millrace::tools {

/// What a summary says besides the trainer's result.
struct TrainFacts {
  const Recipe& recipe;
  const DatasetInfo& dataset;
  std::string device;
  std::uint64_t parameters = 0;
  int threads = 0;
  const LoaderOptions& options;
  LoaderStats loader;
  std::uint64_t failed = 0;  ///< samples, of training and evaluation
  std::string parameters_hash;
  std::string batch_hash;  ///< empty without --hash
  std::uint64_t peak_device_bytes = 0;
  double wall_s = 0;  ///< from main() to the summary
  pipeline::SpanTicks spans{};
  train::Position from;  ///< where the run was taken up
  std::optional<train::DeviceTime> device_time;
  std::optional<train::Utilization> utilization;
  const study::WaitBreakdown& blame;
};

nlohmann::ordered_json epoch_line(const train::EpochRecord& record, const DatasetInfo& dataset);
/// What TensorBoard is shown of a line of metrics.jsonl: each figure that it has.
std::vector<study::Scalar> epoch_scalars(const nlohmann::ordered_json& line);
nlohmann::ordered_json summary_of(const TrainFacts& facts, const train::TrainResult& result);
/// What the ranks have to say of themselves, by rank, and the sums over them; all must call it.
void add_ranks(nlohmann::ordered_json& summary, const train::RankInfo& rank,
               train::Strategy& strategy);
/// The summary for people: where the time went, then what the model can do.
std::string closing_table(const nlohmann::ordered_json& summary);

/// Loss, top-1, top-5, per-class accuracy of an evaluation.
nlohmann::ordered_json to_json(const train::Evaluation& evaluation,
                               const std::vector<std::string>& classes);
/// A figure, or NaN where the JSON says null: what a diverged model leaves.
double number_in(const nlohmann::ordered_json& json, const char* key);
/// "2 workers, 4 I/O threads".
std::string threads_text(const LoaderOptions& options);
/// What data.cache=cold has counted: proven and resident reads.
nlohmann::ordered_json cold_json(const ColdCounts& counts);
/// Most memory that the process has held so far.
std::uint64_t peak_rss_bytes();

}  // namespace millrace::tools
