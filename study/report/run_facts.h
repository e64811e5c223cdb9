// What a summary says of a run, as names and values for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "study/records/config_table.h"
#include "study/records/step_table.h"

namespace millrace::study {

using Facts = std::vector<std::pair<std::string, std::string>>;

/// Of a run that has ended. What the summary lacks is left out.
Facts summary_facts(const nlohmann::ordered_json& summary);
/// Of one that has not: what it was to be, from its configuration, and how far it came.
Facts step_facts(const ConfigValues& config, const StepTable& steps, std::size_t epochs);
/// "finished", "interrupted after step 12", "failed: ...", or that there is no summary.
std::string state_of(const nlohmann::ordered_json& summary);

/// 12345.6 -> "12,346".
std::string with_thousands(double value);

}  // namespace millrace::study
