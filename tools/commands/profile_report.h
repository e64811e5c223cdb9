// What a profile found, as a document and as text.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "study/analysis/ceilings.h"
#include "study/analysis/replay.h"
#include "study/analysis/whatif.h"

namespace millrace::tools {

struct ProfileReport {
  std::string recipe;
  nlohmann::ordered_json summary;           ///< of the baseline's first run
  double baseline = 0;                      ///< its images/s
  std::optional<double> verified_baseline;  ///< of --verify's blocks: their median
  study::ReplayOutput replayed;             ///< the baseline's replay

  study::StageDemand stages;
  double crowding_stage = 1, crowding_update = 1, wake_s = 0, take_s = 0, spread = 0;
  std::vector<study::Ceiling> ceilings;
  study::LowestCeiling bound;
  std::vector<study::Outcome> outcomes;  ///< ratios against the baseline
  std::optional<study::Score> score;     ///< of --verify
  study::Advice advice;
  int workers = 0, prefetch = 0;
  double others = 0;  ///< most of the machine that other processes had during a run, 0..1
};

/// predictions.json: what is written before anything is verified.
nlohmann::ordered_json predictions_json(const ProfileReport& report);
/// The baseline's summary, and bound, verdict, blame, ceilings, what_if, advice, model.
nlohmann::ordered_json profile_json(const ProfileReport& report);
std::string profile_text(const ProfileReport& report);

}  // namespace millrace::tools
