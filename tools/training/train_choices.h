// Recipe keys of models and training with fixed choices, as enumerations.
#pragma once

#include "millrace/recipe.h"
#include "recipe/choice.h"

namespace millrace::tools {

enum class StrategyKind { single, data_parallel, ddp };
/// Selects the operators that compute a model: model.ops.
enum class Ops { automatic, native, torch };
/// train.clock: whether each step waits for the device.
enum class StepClock { sync, async };

inline StrategyKind strategy_of(const Recipe& recipe) {
  return recipe::choice_of<StrategyKind>(recipe, "train.strategy",
                                         {{"single", StrategyKind::single},
                                          {"data_parallel", StrategyKind::data_parallel},
                                          {"ddp", StrategyKind::ddp}});
}

inline Ops ops_of(const Recipe& recipe) {
  return recipe::choice_of<Ops>(
      recipe, "model.ops",
      {{"auto", Ops::automatic}, {"native", Ops::native}, {"torch", Ops::torch}});
}

inline StepClock clock_of(const Recipe& recipe) {
  return recipe::choice_of<StepClock>(recipe, "train.clock",
                                      {{"sync", StepClock::sync}, {"async", StepClock::async}});
}

}  // namespace millrace::tools
