// The reports: on a run with its ranks and its model, on several runs, on a sweep and on a
// profile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "study/records/run_files.h"
#include "study/records/summary.h"
#include "study/report/figures.h"
#include "study/report/report.h"

namespace millrace::study {

// Reads what `millrace eval --predictions` wrote.

/// An image that the model took for another class.
struct WrongImage {
  std::string name, label, predicted;
  double probability = 0;  ///< of `predicted`
  std::uint64_t row = 0;   ///< from 0; images that could not be loaded have no row
};

struct Predictions {
  std::uint64_t images = 0;
  std::uint64_t wrong = 0;
  std::vector<WrongImage> confident;  ///< wrong ones, the highest probability first
};

/// Reads all rows and keeps the `most` most confidently wrong images. Throws DataError with the row
/// that is damaged, or if the file is not a table of predictions.
Predictions read_predictions(const std::filesystem::path& file, std::size_t most);

// Figures and tables of a run's ranks.

struct RankSteps {
  int rank;
  const StepTable* steps;
};

/// Returns the numbers of the ranks whose tables lie beside rank 0's.
std::vector<int> other_ranks(const std::filesystem::path& run);

/// Adds what each replica was given, if the run had replicas.
void add_replicas(const Summary& summary, Report& report);

/// Adds each rank's time, from its own table, and what the summary says about it: images, waits and
/// the utilisation of its device.
void add_ranks(const std::vector<RankSteps>& ranks, const Summary& summary, Report& report);

// The part of a run's report on its model: loss, accuracy, per-class accuracy, confusions.

/// Adds loss and accuracy over the epochs and, from the last recorded evaluation, the accuracy of
/// each class, the confusion matrix if it is small, and the most frequent mistakes. `run` is the
/// run's directory.
void add_model(const std::filesystem::path& run, const Summary& summary, const JsonLines& epochs,
               const StepTable& steps, Report& report);

// The memory of a watched loop.

/// Returns the sizes of the trainer and its workers over time, from the run's memory.csv: the
/// highest of neighbouring samples where there are many. Returns nothing without samples. Throws
/// DataError if the file is damaged.
std::vector<Figure> memory_figure(const std::filesystem::path& run);

// Report on a run directory: shows what is there, and notes what is missing.

/// Returns the verdict, facts, figures and tables of the run at `path`, which may still be going or
/// have been killed. Throws DataError if a file is damaged.
Report run_report(const std::filesystem::path& path);

/// Reports on a run that goes on. Each report reads only the steps that have been appended since
/// the last one.
class RunReader {
 public:
  explicit RunReader(std::filesystem::path run);

  /// Returns the report as run_report() does, after reading at most `most_steps` further rows of
  /// the tables of steps of all ranks together.
  Report report(std::uint64_t most_steps);
  /// Returns whether the last report covers all rows.
  bool at_end() const { return at_end_; }

 private:
  struct Table {
    explicit Table(const std::filesystem::path& file) : reader(file) {}
    StepReader reader;
    StepTable table;
  };
  const StepTable& steps(const std::string& name, std::uint64_t& left);

  std::filesystem::path run_;
  std::map<std::string, Table> tables_;  ///< by file name
  bool at_end_ = true;
};

/// Series of load + update in the distribution of the step time.
inline constexpr const char* kWholeStep = "load + update";

/// Returns p50, p90 and p99 of load per step and of its parts, in ms, from `summary`'s blame_step.
std::vector<Figure> wait_quantiles(const Summary& summary);

// Reports that show several runs side by side.

/// Returns the facts and keys that differ, each run's time by parts, and each curve with one line
/// per run. Throws DataError if a file is damaged.
Report comparison_report(const std::vector<std::filesystem::path>& runs);

/// Returns the report on the runs, profiles and sweeps directly below `folder`, by name: a table
/// with the keys that differ and the results, and the curves of all runs, of which the page shows
/// the chosen ones. Names damaged runs in its notes.
Report folder_report(const std::filesystem::path& folder);

/// Returns the folders directly below `folder` that hold a run, a profile or a sweep, by name.
std::vector<std::filesystem::path> runs_below(const std::filesystem::path& folder);

// Report on a sweep's directory: its table, and each important column as a figure.

/// Returns the report on the sweep at `path`. An unfinished sweep shows its finished runs without
/// verdicts. Throws DataError if a file is damaged.
Report sweep_report(const std::filesystem::path& path);

// Report on a profile's directory: the baseline's time, each resource's ceiling, and the predicted
// and measured effect of changes.

/// Returns the report on the profile at `path`, verified or not, finished or not. Throws DataError
/// if a file is damaged.
Report profile_report(const std::filesystem::path& path);

}  // namespace millrace::study
