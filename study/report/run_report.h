// Report on a run directory: shows what is there, and notes what is missing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "study/records/step_table.h"
#include "study/report/report.h"

namespace millrace::study {

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
    explicit Table(std::filesystem::path file) : reader(std::move(file)) {}
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

/// Names and values for people.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Returns the facts of a finished run. Leaves out what the summary lacks.
Facts summary_facts(const nlohmann::ordered_json& summary);
/// Returns "finished", "interrupted after step 12", "failed: ...", or that there is no summary.
std::string state_of(const nlohmann::ordered_json& summary);
/// Returns "stopped early at epoch 7: top1 has not improved by more than 0.001 since epoch 4";
/// empty if train.early_stopping has not ended the run.
std::string early_stop_of(const nlohmann::ordered_json& summary);
/// Returns p50, p90 and p99 of load per step and of its parts, in ms, from `summary`'s blame_step.
std::vector<Figure> wait_quantiles(const nlohmann::ordered_json& summary);

}  // namespace millrace::study
