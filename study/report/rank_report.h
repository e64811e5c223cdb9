// Figures and tables of a run's ranks.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "study/records/step_table.h"
#include "study/report/report.h"

namespace millrace::study {

struct RankSteps {
  int rank;
  const StepTable* steps;
};

/// Returns the numbers of the ranks whose tables lie beside rank 0's.
std::vector<int> other_ranks(const std::filesystem::path& run);

/// Adds what each replica was given, if the run had replicas.
void add_replicas(const nlohmann::ordered_json& summary, Report& report);

/// Adds each rank's time, from its own table, and what the summary says about it: images, waits and
/// the utilisation of its device.
void add_ranks(const std::vector<RankSteps>& ranks, const nlohmann::ordered_json& summary,
               Report& report);

}  // namespace millrace::study
