// Turns a training run into records: metrics.jsonl, summary.json, the closing table.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/loader.h"
#include "millrace/recipe.h"
#include "strategies/trainer/strategy.h"
#include "strategies/trainer/trainer.h"
#include "strategies/trainer/utilization.h"
#include "study/analysis/update_times.h"
#include "study/analysis/wait_breakdown.h"
#include "study/records/tensorboard.h"

namespace millrace::tools {

/// Facts of a summary besides the trainer's result.
struct TrainFacts {
  const Recipe& recipe;
  const DatasetInfo& dataset;
  std::string device;
  std::uint64_t parameters = 0;
  int threads = 0;
  const LoaderOptions& options;
  LoaderStats loader;
  std::uint64_t failed = 0;  ///< samples of training and evaluation
  std::string parameters_hash;
  std::string batch_hash;  ///< empty without --hash
  std::uint64_t peak_device_bytes = 0;
  double wall_s = 0;  ///< from main() to the summary
  pipeline::SpanTicks spans{};
  train::Position from;  ///< position at which the run was resumed
  std::optional<train::DeviceTime> device_time;
  std::optional<train::Utilization> utilization;
  const study::WaitBreakdown& blame;
  const study::UpdateTimes& updates;
  train::Submissions submissions;
  bool knows_device_work = false;  ///< Strategy::knows_device_work()
};

nlohmann::ordered_json epoch_line(const train::EpochRecord& record, const DatasetInfo& dataset);
/// Returns the figures of a metrics.jsonl line that TensorBoard shows.
std::vector<study::Scalar> epoch_scalars(const nlohmann::ordered_json& line);
nlohmann::ordered_json summary_of(const TrainFacts& facts, const train::TrainResult& result);
/// Adds each rank's facts, by rank, and their sums. All ranks must call it.
void add_ranks(nlohmann::ordered_json& summary, const train::RankInfo& rank,
               train::Strategy& strategy);
/// Returns the summary for people: where the time went, then the model's quality.
std::string closing_table(const nlohmann::ordered_json& summary);

/// Returns loss, top-1, top-5 and per-class accuracy of an evaluation.
nlohmann::ordered_json to_json(const train::Evaluation& evaluation,
                               const std::vector<std::string>& classes);
/// Returns the classes of a summary's per_class with their accuracies, NaN for one without images.
/// Returns the ten classes with the lowest accuracy if there are more than ten, worst first.
std::vector<std::pair<std::string, double>> worst_classes(const nlohmann::ordered_json& per_class);
/// Returns a number, or NaN if the JSON holds null, as it does for a diverged model.
double number_in(const nlohmann::ordered_json& json, const char* key);
/// Returns "2 workers, 4 I/O threads".
std::string threads_text(const LoaderOptions& options);
/// Returns the counts of data.cache=cold: proven and resident reads.
nlohmann::ordered_json cold_json(const ColdCounts& counts);
/// Returns the process's peak memory so far, in bytes.
std::uint64_t peak_rss_bytes();

}  // namespace millrace::tools
