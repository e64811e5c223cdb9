// Options of strategies for tests, by the recipe's keys.
#pragma once

#include <string>

#include "millrace/param.h"
#include "strategies/trainer/strategy_options.h"

namespace millrace::test {

/// Sets a recipe key of a strategy.
inline void set(train::StrategyOptions& options, const std::string& key, const Value& value) {
  options.recipe.set(key + "=" + to_toml(value));
}

/// Lets up to `steps` steps be in flight on the device; 0: the sync clock.
inline void set_inflight(train::StrategyOptions& options, int steps) {
  set(options, "train.clock", steps > 0 ? "async" : "sync");
  if (steps > 0) set(options, "train.inflight", steps);
}

}  // namespace millrace::test
