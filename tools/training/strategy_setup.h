// From a recipe to what runs its steps.
#pragma once

#include <memory>

#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "millrace/transform.h"
#include "strategies/trainer/strategy.h"

namespace millrace::tools {

/// Cores that this process may run on.
int cores();
bool is_simulated(const Recipe& recipe);
bool is_on_cpu(const Recipe& recipe);
/// train.threads, or what the host's cores leave each rank and replica beside its workers.
int threads_of(const Recipe& recipe, const train::RankInfo& rank);
/// The recipe with model.ops=auto resolved for a run of `world` ranks.
Recipe with_ops(Recipe recipe, int world = 1);
/// `recipe`'s model.ops is resolved; `hooks` are train.strategy=ddp's. Throws UsageError for a
/// device that no name is known for, DeviceError for one that is missing.
std::unique_ptr<train::Strategy> make_strategy(const Recipe& recipe, const Reader& reader,
                                               const SampleSpec& sample,
                                               const train::RankInfo& rank = {},
                                               train::RankHooks hooks = {});

}  // namespace millrace::tools
