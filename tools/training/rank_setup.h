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

/// Raises the limit of open files to the needs of a rank in a run of `ranks`. Throws RunError if it
/// cannot, because c10d calls abort() in a process that runs out of descriptors.
void allow_descriptors(int ranks);

}  // namespace millrace::tools
