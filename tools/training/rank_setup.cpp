// Chooses the launcher's variables and raises the limit of open files.
#include "tools/training/rank_setup.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "millrace/error.h"
#include "tools/terminal/console.h"
#include "tools/training/strategy_setup.h"

namespace millrace::tools {
namespace {

const char* lookup(const char* name) { return std::getenv(name); }

/// Returns the ranks or replicas of this host.
int shares_of(const Recipe& recipe, const train::RankInfo& rank) {
  return recipe.text("train.strategy") == "data_parallel"
             ? static_cast<int>(recipe.integer("train.replicas"))
             : rank.local_world;
}

/// Returns the cores that the ranks of this host share. MPI and Slurm may bind each rank to cores
/// of its own.
int shared_cores(const train::RankInfo& rank) {
  const bool may_bind = rank.world > 1 && rank.launcher != "torchrun";
  return may_bind ? static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) : cores();
}

}  // namespace

int ranks_to_start(const Recipe& recipe) {
  const auto ranks = static_cast<int>(recipe.integer("train.ranks"));
  if (ranks == 0) return 0;
  const std::string& strategy = recipe.text("train.strategy");
  if (strategy != "ddp")
    throw UsageError(
        fmt::format("train.ranks={} with train.strategy={}: only ddp has ranks", ranks, strategy),
        "set train.strategy=ddp, or leave train.ranks out");
  if (is_simulated(recipe)) return 0;  // rank_of() rejects it
  const auto rank = train::rank_from_environment(lookup);
  if (!rank || (rank->launcher == "slurm" && rank->world == 1)) return ranks;
  return 0;
}

Recipe with_ranks(Recipe recipe, const train::RankInfo& rank) {
  const std::int64_t ranks = recipe.integer("train.ranks");
  if (ranks == 0 || ranks == rank.world) return recipe;
  say(fmt::format("train.ranks={}, but {} has started {}: the launcher decides", ranks,
                  rank.launcher, rank.world));
  recipe.set(fmt::format("train.ranks={}", rank.world));
  return recipe;
}

bool is_oversubscribed(const Recipe& recipe, const train::RankInfo& rank) {
  return shares_of(recipe, rank) > shared_cores(rank);
}

void warn_of_oversubscription(const Recipe& recipe, const train::RankInfo& rank) {
  if (!is_oversubscribed(recipe, rank)) return;
  const int shares = shares_of(recipe, rank);
  const int available = shared_cores(rank);
  say(fmt::format(
      "warning: {} {} share {} core{} and take turns: times are not those of {} devices", shares,
      rank.local_world > 1 ? "ranks" : "replicas", available, available == 1 ? "" : "s", shares));
}

train::RankInfo rank_of(const Recipe& recipe) {
  const std::string& strategy = recipe.text("train.strategy");
  if (strategy == "ddp") {
    if (is_simulated(recipe))
      throw UsageError("train.strategy=ddp with train.device=simulated: there is nothing to share",
                       "use train.device=cpu, or train.strategy=single");
    if (const auto rank = train::rank_from_environment(lookup)) return *rank;
    throw UsageError("train.strategy=ddp, but this process was not started as one of several ranks",
                     "set train.ranks=2, or try: millrace launch -n 2 -- train ... (or torchrun, "
                     "srun, mpirun)");
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
