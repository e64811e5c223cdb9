// The part of a run's report on its model: loss, accuracy, per-class accuracy, confusions.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "study/records/step_table.h"
#include "study/report/figures.h"
#include "study/report/report.h"

namespace millrace::study {

/// Adds loss and accuracy over the epochs and, from the last recorded evaluation, the accuracy of
/// each class, the confusion matrix if it is small, and the most frequent mistakes. `run` is the
/// run's directory.
void add_model(const std::filesystem::path& run, const nlohmann::ordered_json& summary,
               const JsonLines& epochs, const StepTable& steps, Report& report);

}  // namespace millrace::study
