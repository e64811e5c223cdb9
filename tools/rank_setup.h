// Which rank of a distributed run this process is.
#pragma once

#include "pipeline/recipe.h"
#include "strategies/rank.h"

namespace millrace {

/// Of train.strategy=ddp, from the environment; of a simulated device, from torchrun's and
/// `millrace launch`'s alone. Else rank 0 of 1. Throws UsageError as rank_from_environment() does,
/// and where a launcher has started several ranks of a strategy that has none.
RankInfo rank_of(const Recipe& recipe);

}  // namespace millrace
