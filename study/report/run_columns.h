// Chooses which keys of many runs become columns of a table of runs.
#pragma once

#include <string>
#include <vector>

#include "study/report/report.h"

namespace millrace::study {

/// The keys in which runs differ, as a table of runs shows them.
struct RunColumns {
  std::vector<std::string> keys{};                ///< headings
  std::vector<std::vector<std::string>> cells{};  ///< per run, a value for each key
  /// Per run: its values of keys that are not columns, "seed=7, loader.prefetch=2", or an empty
  /// text.
  std::vector<std::string> rest{};
};

/// Chooses at most `most` columns from `keys`, a config_table() of the runs. First stand the keys
/// that people vary (model, data, batch, learning rate, epochs, workers, augmentations, strategy),
/// then those whose values explain a difference of results: rows of `results`, one value per run
/// or NaN. A key in which one run alone differs from at least three others is not a column, so that
/// an odd run does not change what is shown of the others.
RunColumns run_columns(const ReportTable& keys, const std::vector<std::vector<double>>& results,
                       std::size_t most);

}  // namespace millrace::study
