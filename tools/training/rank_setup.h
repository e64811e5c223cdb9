// Which rank of a distributed run this process is.
#pragma once

#include "millrace/recipe.h"
#include "strategies/control/rank.h"

namespace millrace::tools {

/// Of train.strategy=ddp, from the environment; of a simulated device, from torchrun's and
/// `millrace launch`'s alone. Else rank 0 of 1. Throws UsageError as rank_from_environment() does,
/// where no launcher has started a rank of ddp, and where one has started several of a strategy
/// that has none.
train::RankInfo rank_of(const Recipe& recipe);

/// Raises the limit of open files to what a run of so many ranks takes in each of them. Throws
/// RunError where it cannot: c10d ends a process that runs out of descriptors by abort().
void allow_descriptors(int ranks);

}  // namespace millrace::tools
