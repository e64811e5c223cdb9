// The figures of a run's time: a step's, an epoch's, what was waited for, images a second.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "study/records/step_table.h"
#include "study/report/report.h"

namespace millrace::study {

using JsonLines = std::vector<nlohmann::ordered_json>;

/// Load, update and records a step, in ms, over the steps; then the same by spans. What happens
/// once or between steps (setup, first batch, evaluation, checkpoints, teardown) is in the captions
/// and in epoch_figure().
std::vector<Figure> step_figures(const StepTable& steps);
/// Seconds of an epoch by what they went into; epochs in groups where there are many.
std::vector<Figure> epoch_figure(const JsonLines& epochs);
/// Load of an epoch by what was waited for.
std::vector<Figure> blame_figure(const JsonLines& epochs);
/// p50, p90 and p99 of load a step and of its parts, in ms; of `summary`'s blame_step.
std::vector<Figure> blame_step_figure(const nlohmann::ordered_json& summary);
/// Images/s over the epochs, or over the steps while there are not two epochs.
std::vector<Figure> throughput_figure(const JsonLines& epochs, const StepTable& steps);

/// Ranges of neighbours that `count` things are shown in: at most `most`, as even as can be.
struct Group {
  std::size_t begin, end;
};
std::vector<Group> groups_of(std::size_t count, std::size_t most);

/// Takes series that are 0 or NaN everywhere out; empty where nothing is left.
std::vector<Figure> shown(Figure figure);

}  // namespace millrace::study
