// Facts of a run, as names and values for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "study/records/config_table.h"
#include "study/records/step_table.h"

namespace millrace::study {

using Facts = std::vector<std::pair<std::string, std::string>>;

/// Returns the facts of a finished run. Leaves out what the summary lacks.
Facts summary_facts(const nlohmann::ordered_json& summary);
/// Returns the facts of an unfinished run: its configuration and its progress.
Facts step_facts(const ConfigValues& config, const StepTable& steps, std::size_t epochs);
/// Returns "finished", "interrupted after step 12", "failed: ...", or that there is no summary.
std::string state_of(const nlohmann::ordered_json& summary);

/// 12345.6 -> "12,346".
std::string with_thousands(double value);

}  // namespace millrace::study
