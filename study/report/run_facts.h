// Facts of a run for people, from its summary or, while it goes on, from its steps.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "study/records/run_files.h"
#include "study/records/summary.h"
#include "study/report/figures.h"

namespace millrace::study {

/// Names and values for people.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Returns the facts of a finished run. Leaves out what the summary lacks.
Facts summary_facts(const Summary& summary);
/// Returns the facts of an unfinished run: its configuration and its progress.
Facts step_facts(const ConfigValues& config, const StepTable& steps, std::size_t epochs);
/// Returns "finished", "interrupted after step 12", "failed: ...", or that there is no summary of
/// the run's end.
std::string state_of(const Summary& summary);
/// Returns "stopped early at epoch 7: top1 has not improved by more than 0.001 since epoch 4";
/// empty if train.early_stopping has not ended the run.
std::string early_stop_of(const Summary& summary);

}  // namespace millrace::study
