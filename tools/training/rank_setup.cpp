// Chooses the launcher's variables and raises the limit of open files.
#include "tools/training/rank_setup.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>

#include "millrace/error.h"
#include "tools/training/strategy_setup.h"

namespace millrace::tools {

train::RankInfo rank_of(const Recipe& recipe) {
  const train::EnvironmentLookup lookup = [](const char* name) { return std::getenv(name); };
  const std::string& strategy = recipe.text("train.strategy");
  if (strategy == "ddp") {
    if (is_simulated(recipe))
      throw UsageError("train.strategy=ddp with train.device=simulated: there is nothing to share",
                       "use train.device=cpu, or train.strategy=single");
    if (const auto rank = train::rank_from_environment(lookup)) return *rank;
    throw UsageError("train.strategy=ddp, but this process was not started as one of several ranks",
                     "try: millrace launch -n 2 -- train ... (or torchrun, srun, mpirun)");
  }
  // Every process of a job has the job's environment: only variables that a launcher sets per rank
  // prove that a rank was started.
  if (lookup("RANK") == nullptr || lookup("WORLD_SIZE") == nullptr) return {};
  train::RankInfo info = train::rank_from_environment(lookup).value_or(train::RankInfo{});
  if (info.world == 1 || is_simulated(recipe)) return info;
  throw UsageError(
      fmt::format("train.strategy={}, but {} ranks were started", strategy, info.world),
      "set train.strategy=ddp to share the work, or start millrace train without a launcher");
}

void allow_descriptors(int ranks) {
  constexpr rlim_t kOfOne = 40;      // descriptors of LibTorch, the records and a data set
  constexpr rlim_t kOfEachPeer = 6;  // rank 0 has most: store, control channel, Gloo
  constexpr rlim_t kSpare = 64;      // connections of strangers, before they are closed
  const rlim_t least = kOfOne + kOfEachPeer * static_cast<rlim_t>(ranks - 1);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= least + kSpare) return;
  rlimit raised = limit;
  raised.rlim_cur = std::min(limit.rlim_max, least + kSpare);
  if (raised.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  if (limit.rlim_cur < least)
    throw RunError(fmt::format("each of {} ranks needs up to {} open files, but the limit is {}",
                               ranks, least, limit.rlim_cur),
                   "raise it in this shell: ulimit -n 1024");
}

}  // namespace millrace::tools
