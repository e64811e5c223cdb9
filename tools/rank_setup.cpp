#include "tools/rank_setup.h"

#include <fmt/format.h>

#include <cstdlib>

#include "pipeline/error.h"
#include "tools/strategy_setup.h"

namespace millrace {

RankInfo rank_of(const Recipe& recipe) {
  const EnvironmentLookup lookup = [](const char* name) { return std::getenv(name); };
  const std::string& strategy = recipe.text("train.strategy");
  if (strategy == "ddp") {
    if (is_simulated(recipe))
      throw UsageError("train.strategy=ddp with train.device=simulated: there is nothing to share",
                       "use train.device=cpu, or train.strategy=single");
    if (const auto rank = rank_from_environment(lookup)) return *rank;
    throw UsageError("train.strategy=ddp, but nothing has started this process as one of several",
                     "try: millrace launch -n 2 -- train ... (or torchrun, srun, mpirun)");
  }
  // A job's environment stands in every process of it: only what a launcher sets for each rank
  // tells of ranks that nobody has asked for.
  if (lookup("RANK") == nullptr || lookup("WORLD_SIZE") == nullptr) return {};
  RankInfo info = rank_from_environment(lookup).value_or(RankInfo{});
  if (info.world == 1 || is_simulated(recipe)) return info;
  throw UsageError(
      fmt::format("train.strategy={}, but {} ranks were started", strategy, info.world),
      "train.strategy=ddp shares the work among them; or start millrace train alone");
}

}  // namespace millrace
