// Results of a profile, as JSON and as text.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "study/analysis/ceilings.h"
#include "study/analysis/replay.h"
#include "study/analysis/verification.h"
#include "study/analysis/whatif.h"

namespace millrace::tools {

struct ProfileReport {
  std::string recipe;
  nlohmann::ordered_json summary;  ///< summary of the baseline's first run
  double baseline = 0;             ///< images/s of the median of these runs
  study::ReplayOutput replayed;    ///< replay of the baseline

  study::StageDemand stages;
  double crowding_stage = 1, crowding_update = 1, wake_s = 0, take_s = 0, spread = 0;
  std::vector<study::Ceiling> ceilings;
  study::LowestCeiling bound;
  std::vector<study::Outcome> outcomes;         ///< ratios to the baseline
  study::VerificationOrder order;               ///< what --verify runs: indices of outcomes
  std::optional<study::Verification> verified;  ///< only with --verify, and once it has run
  study::Advice advice;
  int workers = 0, prefetch = 0;
  double others = 0;  ///< largest share of the machine that other processes took during a run, 0..1
};

/// Returns predictions.json, which is written before anything is verified: the predictions, the
/// order of the runs that verify them, and the share of others above which a run is void.
nlohmann::ordered_json predictions_json(const ProfileReport& report);
/// Returns the baseline's summary, and bound, verdict, blame, ceilings, what_if, advice, model.
nlohmann::ordered_json profile_json(const ProfileReport& report);
std::string profile_text(const ProfileReport& report);

}  // namespace millrace::tools
