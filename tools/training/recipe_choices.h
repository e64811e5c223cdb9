// Recipe keys with fixed choices as enumerations: their texts are compared here and nowhere else.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "millrace/loader.h"
#include "millrace/plan.h"
#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "millrace/transform.h"

namespace millrace::tools {

enum class StrategyKind { single, data_parallel, ddp };
/// Selects the operators that compute a model: model.ops.
enum class Ops { automatic, native, torch };
/// Selects where levels become numbers: output.normalize.
enum class Normalize { loader, device };
/// train.clock: whether each step waits for the device.
enum class StepClock { sync, async };

/// Returns the value of a key of type choice. Throws std::logic_error if a declared choice has no
/// value here.
template <typename Enum>
Enum choice_of(const Recipe& recipe, const char* key,
               std::initializer_list<std::pair<std::string_view, Enum>> choices) {
  const std::string& text = recipe.text(key);
  for (const auto& [name, value] : choices)
    if (name == text) return value;
  throw std::logic_error(fmt::format("{}={} has no meaning", key, text));
}

inline LoaderMode loader_mode_of(const Recipe& recipe) {
  return choice_of<LoaderMode>(recipe, "loader.mode",
                               {{"normal", LoaderMode::normal},
                                {"synthetic", LoaderMode::synthetic},
                                {"cached", LoaderMode::cached}});
}

inline OnError on_error_of(const Recipe& recipe) {
  return choice_of<OnError>(
      recipe, "loader.on_error",
      {{"fail", OnError::fail}, {"skip", OnError::skip}, {"replace", OnError::replace}});
}

inline Cache cache_of(const Recipe& recipe) {
  return choice_of<Cache>(recipe, "data.cache",
                          {{"os", Cache::os}, {"ram", Cache::ram}, {"cold", Cache::cold}});
}

inline IndexUse index_use_of(const Recipe& recipe) {
  return choice_of<IndexUse>(
      recipe, "data.index",
      {{"auto", IndexUse::automatic}, {"require", IndexUse::require}, {"off", IndexUse::off}});
}

inline DType dtype_of(const Recipe& recipe) {
  return choice_of<DType>(
      recipe, "output.dtype",
      {{"f32", DType::f32}, {"u8", DType::u8}, {"f16", DType::f16}, {"bf16", DType::bf16}});
}

inline Layout layout_of(const Recipe& recipe) {
  return choice_of<Layout>(recipe, "output.layout", {{"chw", Layout::chw}, {"hwc", Layout::hwc}});
}

inline Normalize normalize_of(const Recipe& recipe) {
  return choice_of<Normalize>(recipe, "output.normalize",
                              {{"loader", Normalize::loader}, {"device", Normalize::device}});
}

inline Resample resample_of(const Recipe& recipe) {
  return choice_of<Resample>(recipe, "resample",
                             {{"once", Resample::once}, {"stepwise", Resample::stepwise}});
}

inline StrategyKind strategy_of(const Recipe& recipe) {
  return choice_of<StrategyKind>(recipe, "train.strategy",
                                 {{"single", StrategyKind::single},
                                  {"data_parallel", StrategyKind::data_parallel},
                                  {"ddp", StrategyKind::ddp}});
}

inline Ops ops_of(const Recipe& recipe) {
  return choice_of<Ops>(recipe, "model.ops",
                        {{"auto", Ops::automatic}, {"native", Ops::native}, {"torch", Ops::torch}});
}

inline StepClock clock_of(const Recipe& recipe) {
  return choice_of<StepClock>(recipe, "train.clock",
                              {{"sync", StepClock::sync}, {"async", StepClock::async}});
}

}  // namespace millrace::tools
