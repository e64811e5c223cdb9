// Predicts other numbers of workers from the records of one run.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "study/analysis/replay.h"

namespace millrace::study {

/// Returns the replay's input for the run of `summary`: CPU time per sample from loader_cpu_s, the
/// update and the trainer's own time per step. Returns nothing where the records do not suffice:
/// several ranks, workers that changed within the run, an emulated storage, whose reads' sizes no
/// record holds, or figures that are missing.
std::optional<ReplayInput> recorded_input(const nlohmann::ordered_json& summary, bool storage);

}  // namespace millrace::study
