// The figures of what a model has learnt: loss, accuracy, classes, confusions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "study/records/step_table.h"
#include "study/report/report.h"
#include "study/report/run_figures.h"

namespace millrace::study {

/// Of training and test over the epochs; then what was read of single steps.
std::vector<Figure> loss_figures(const JsonLines& epochs, const StepTable& steps);
/// Top-1 and top-5 on the test set over the epochs, in percent.
std::vector<Figure> accuracy_figure(const JsonLines& epochs);
/// Of `evaluation`'s per_class, in percent; of very many classes, those with the lowest.
std::vector<Figure> class_figure(const nlohmann::ordered_json& evaluation);

/// Of `evaluation`'s confusion [label][prediction], whose names are those of per_class: as a matrix
/// where it is small, and the commonest mistakes.
std::vector<Figure> confusion_figure(const nlohmann::ordered_json& evaluation);
std::vector<ReportTable> confusion_table(const nlohmann::ordered_json& evaluation);

}  // namespace millrace::study
