// Makes the strategy that a recipe asks for.
#pragma once

#include <memory>

#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "millrace/transform.h"
#include "strategies/trainer/strategy.h"

namespace millrace::tools {

/// Returns the cores that this process may run on.
int cores();
bool is_simulated(const Recipe& recipe);
bool is_on_cpu(const Recipe& recipe);
/// Returns train.threads, or by default the cores of the host that are left to each rank and
/// replica beside its workers.
int threads_of(const Recipe& recipe, const train::RankInfo& rank);
/// Returns the recipe with model.ops=auto resolved for a run of `world` ranks.
Recipe with_ops(Recipe recipe, int world = 1);
/// Makes the strategy. `recipe`'s model.ops must be resolved; `hooks` serve train.strategy=ddp.
/// Throws UsageError for an unknown device name, DeviceError for a missing device.
std::unique_ptr<train::Strategy> make_strategy(const Recipe& recipe, const Reader& reader,
                                               const SampleSpec& sample,
                                               const train::RankInfo& rank = {},
                                               train::RankHooks hooks = {});

}  // namespace millrace::tools
