// Draws all that a profile says from one set of facts: bound, table, advice and worker count.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "predict/loader_replay.h"
#include "predict/rules.h"
#include "study/analysis/bound.h"
#include "study/analysis/whatif.h"

namespace millrace::study {

/// Relative half width of a prediction's 90% interval if demands are known exactly and the replay
/// of the baseline is right: nine tenths of the errors in docs/results/2026-11-22-what-if.md are
/// smaller.
inline constexpr double kModelError = 0.03;

/// Measurements of a run, from which a profile concludes.
struct ProfileFacts {
  struct Tried {
    Change change;
    predict::ReplayInput input;  ///< of the run with that change
  };

  predict::ReplayInput input;    ///< of the run as configured
  StageDemand demand;            ///< of its loader
  double images_per_s = 0;       ///< measured; 0: unknown
  std::string run_bound;         ///< what its waits name (name_of); empty: unknown
  std::string run_verdict;       ///< the sentence about them
  double others = 0;             ///< share of the machine that other programs took meanwhile, 0..1
  double demand_error = 0;       ///< relative half width of the 90% interval of demands
  double rate_error = 0;         ///< relative half width of a measured ratio's 90% interval
  std::vector<Tried> changes{};  ///< in order of preference among equals
};

/// Rows of the table that vary the number of workers only.
struct WorkerRows {
  std::optional<std::size_t> enough;  ///< index of the outcome; nothing: as configured
  int workers = 0;                    ///< of that outcome
  double ratio = 1;                   ///< images/s over the baseline's, as the table has it
  double best_ratio = 1;              ///< the largest such ratio that is considered
};

struct Conclusion {
  double demand_fit = 1;  ///< what the demands of loading are scaled by to explain the rate
  StageDemand demand;     ///< of the loader, scaled
  predict::ReplayOutput replayed;  ///< of the run as configured, with these demands
  std::vector<Ceiling> ceilings;
  /// A resource as in LowestCeiling, "between X and Y", or "other programs".
  std::string bound;
  std::string sentence;           ///< begins with "decode-bound: ", "between X and Y: " or the like
  std::string run_verdict;        ///< the run's waits; begins as `sentence` does
  std::vector<Outcome> outcomes;  ///< by index of ProfileFacts::changes, with their intervals

  /// Returns the outcome to advise, or null: most_helpful().
  const Outcome* advised() const { return most_helpful(outcomes); }
  /// Returns the fewest workers that reach 95% of the best rate of any number of workers in the
  /// table. More workers than configured count only if they are worthwhile.
  WorkerRows enough_workers(int configured) const;
};

/// Draws the conclusion from the facts. The lowest ceiling and the run's waits have to name the
/// same resource. Where they do not, or where another ceiling is within kCrossing of the lowest,
/// the bound is between two. Where other programs took more than predict::kMaxOthers of the machine
/// and the waits do not fit the ceilings, or the waits themselves name them, they are the bound.
///
/// The demands of loading are scaled so that the replay of the baseline gives its measured rate, at
/// most by 2, if that rate depends on them and other programs took at most predict::kMaxOthers. An
/// interval holds the ratios of replays with all demands at either end of their own interval, the
/// unscaled ones included, widened by kModelError, by the rate_error, and by how far the replay of
/// the baseline still is from its measurement.
Conclusion conclude(const ProfileFacts& facts);

}  // namespace millrace::study
