// Figures of a run's time: per step, per epoch, by wait, and in images per second.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "study/records/step_table.h"
#include "study/report/report.h"

namespace millrace::study {

using JsonLines = std::vector<nlohmann::ordered_json>;

/// Returns load, update and records in ms per step over the steps, then the same by spans. Spans
/// outside of steps (setup, first batch, evaluation, checkpoints, teardown) are in the captions and
/// in epoch_figure().
std::vector<Figure> step_figures(const StepTable& steps);
/// Returns each epoch's seconds by parts. Many epochs are shown in groups.
std::vector<Figure> epoch_figure(const JsonLines& epochs);
/// Returns each epoch's load by its wait breakdown.
std::vector<Figure> blame_figure(const JsonLines& epochs);
/// Returns p50, p90 and p99 of load per step and of its parts, in ms, from `summary`'s blame_step.
std::vector<Figure> blame_step_figure(const nlohmann::ordered_json& summary);
/// Returns images/s over the epochs, or over the steps if there are fewer than two epochs.
std::vector<Figure> throughput_figure(const JsonLines& epochs, const StepTable& steps);

/// Range of neighbours drawn as one: `count` items in at most `most` groups of nearly equal size.
struct Group {
  std::size_t begin, end;
};
std::vector<Group> groups_of(std::size_t count, std::size_t most);

/// Removes series that are 0 or NaN everywhere. Returns nothing if none is left.
std::vector<Figure> shown(Figure figure);

}  // namespace millrace::study
