// Determines this process's rank in a distributed run.
#pragma once

#include "millrace/recipe.h"
#include "strategies/control/rank.h"

namespace millrace::tools {

/// Returns the rank: for train.strategy=ddp from the environment; for a simulated device from the
/// variables of torchrun and `millrace launch` alone; otherwise rank 0 of 1. Throws UsageError as
/// rank_from_environment() does, if no launcher has started a rank of ddp, and if one has started
/// several of a strategy without ranks.
train::RankInfo rank_of(const Recipe& recipe);

/// Returns the number of ranks that this process has to start: train.ranks with train.strategy=ddp,
/// unless a launcher has started this process as a rank. Otherwise returns 0. The single task of a
/// Slurm batch script is no rank here. Throws UsageError for train.ranks without ddp.
int ranks_to_start(const Recipe& recipe);

/// Returns the recipe with the number of ranks that run in train.ranks, if that is set. Says so if
/// the launcher started another number.
Recipe with_ranks(Recipe recipe, const train::RankInfo& rank);

/// Returns whether the ranks or replicas on this host are more than its cores, so that they take
/// turns.
bool is_oversubscribed(const Recipe& recipe, const train::RankInfo& rank);
/// Prints a warning if they are.
void warn_of_oversubscription(const Recipe& recipe, const train::RankInfo& rank);

/// Raises the limit of open files to the needs of a rank in a run of `ranks`. Throws RunError if it
/// cannot, because c10d calls abort() in a process that runs out of descriptors.
void allow_descriptors(int ranks);

}  // namespace millrace::tools
