// Recipe keys of models and training with fixed choices, as enumerations.
#pragma once

#include "millrace/recipe.h"
#include "recipe/choice.h"

namespace millrace::train {

enum class StrategyKind { single, data_parallel, ddp };
/// Selects the operators that compute a model: model.ops.
enum class ModelOps { automatic, native, torch };
/// train.clock: whether each step waits for the device.
enum class StepClock { sync, async };

inline StrategyKind strategy_of(const Recipe& recipe) {
  return recipe::choice_of<StrategyKind>(recipe, "train.strategy",
                                         {{"single", StrategyKind::single},
                                          {"data_parallel", StrategyKind::data_parallel},
                                          {"ddp", StrategyKind::ddp}});
}

inline ModelOps ops_of(const Recipe& recipe) {
  return recipe::choice_of<ModelOps>(
      recipe, "model.ops",
      {{"auto", ModelOps::automatic}, {"native", ModelOps::native}, {"torch", ModelOps::torch}});
}

inline StepClock clock_of(const Recipe& recipe) {
  return recipe::choice_of<StepClock>(recipe, "train.clock",
                                      {{"sync", StepClock::sync}, {"async", StepClock::async}});
}

/// Returns the most steps in flight on the device; 0: each step waits for it.
inline int inflight_of(const Recipe& recipe) {
  return clock_of(recipe) == StepClock::async ? static_cast<int>(recipe.integer("train.inflight"))
                                              : 0;
}

}  // namespace millrace::train
