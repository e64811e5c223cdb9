// Figures of the model's quality: loss, accuracy, per-class accuracy, confusions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "study/records/step_table.h"
#include "study/report/report.h"
#include "study/report/run_figures.h"

namespace millrace::study {

/// Returns training and test loss over the epochs, then the losses read back at single steps.
std::vector<Figure> loss_figures(const JsonLines& epochs, const StepTable& steps);
/// Returns top-1 and top-5 accuracy on the test set over the epochs, in percent.
std::vector<Figure> accuracy_figure(const JsonLines& epochs);
/// Returns `evaluation`'s per_class accuracy in percent. If there are very many classes, shows the
/// lowest.
std::vector<Figure> class_figure(const nlohmann::ordered_json& evaluation);

/// Returns `evaluation`'s confusion [label][prediction], with the class names of per_class: a
/// matrix if it is small, and the most frequent mistakes.
std::vector<Figure> confusion_figure(const nlohmann::ordered_json& evaluation);
std::vector<ReportTable> confusion_table(const nlohmann::ordered_json& evaluation);

}  // namespace millrace::study
