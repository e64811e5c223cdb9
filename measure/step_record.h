// One step of a training, as it is recorded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "measure/spans.h"

namespace millrace::measure {

/// Why a step also sets something up, so that its time says nothing about the steps after it.
enum class SetUp {
  none,
  first,    ///< the first step that runs a model: libraries are loaded, memory is taken
  shape,    ///< the first of its kind: another number of samples, or of gradients to add to
  warm_up,  ///< before a CUDA graph is captured
  capture,  ///< captures a CUDA graph
};
inline constexpr std::size_t kSetUpCount = 5;
inline constexpr std::array<std::string_view, kSetUpCount> kSetUpNames{"none", "first", "shape",
                                                                       "warm_up", "capture"};

/// One step. It lasts from its beginning to the beginning of the next one, so that the rows of a
/// run add up to the run: setup belongs to the first step, an evaluation to the step before it.
struct StepRecord {
  std::uint32_t epoch = 0;  ///< from 1
  std::uint64_t step = 0;   ///< from 1, over all epochs
  std::int64_t images = 0;
  std::optional<double> loss;  ///< empty where it was not read
  SpanTicks ticks{};
  SetUp set_up = SetUp::none;
};

}  // namespace millrace::measure
