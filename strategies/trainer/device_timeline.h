// A device's time beside the host's (contract Two clocks). Every moment of a run is either work on
// a step or a gap, and each gap is attributed to the trainer thread's span. Independent of
// LibTorch.
#pragma once

#include <cstddef>
#include <deque>

#include "base/private_api.h"
#include "pipeline/loader/spans.h"
#include "strategies/trainer/strategy.h"

namespace millrace::train {

/// Times from the run's start. Busy time and all gaps add up to it exactly, in ticks.
struct DeviceTime {
  base::Clock::Ticks busy = 0;  ///< time in steps, from a step's first work to its last
  pipeline::SpanTicks gaps{};   ///< gaps by the host's span; an evaluation's work counts as its gap
  base::Clock::Ticks setup_busy = 0;  ///< part of busy, in steps that also set something up
  pipeline::SpanTicks setup_gaps{};   ///< part of gaps, before the ends of these steps
  /// Sums over the steps whose parts were measured and that set nothing up.
  DeviceParts parts;
  std::uint64_t parts_steps = 0;  ///< number of those that ran eagerly
  std::uint64_t graph_steps = 0;  ///< number of those that ran as a graph

  /// Returns the gaps while the batch was not ready.
  base::Clock::Ticks gap_load() const {
    return gaps[static_cast<std::size_t>(pipeline::Span::first_batch)] +
           gaps[static_cast<std::size_t>(pipeline::Span::load)];
  }
  MILLRACE_PRIVATE_API base::Clock::Ticks gap_other() const;
};

class DeviceTimeline final : public pipeline::SpanLog {
 public:
  /// Follows the host's spans through `spans`, from the start of the current one.
  explicit DeviceTimeline(pipeline::SpanClock& spans);
  ~DeviceTimeline() override { spans_.drop(this); }
  DeviceTimeline(const DeviceTimeline&) = delete;
  DeviceTimeline& operator=(const DeviceTimeline&) = delete;

  /// Adds a step that the device worked on from `begin` to `end`, on the host's clock, in order.
  /// Overlap with the previous step counts for that one. `set_up`: the step has also set something
  /// up, and the gap before it counts likewise.
  void step(base::Clock::Ticks begin, base::Clock::Ticks end, bool set_up = false);
  /// Adds the parts of a step that sets nothing up.
  void parts(const DeviceParts& parts);
  /// Returns the times up to `end`. The device must have no step left.
  DeviceTime until(base::Clock::Ticks end);

 private:
  void add(const pipeline::SpanRecord& span) override { host_.push_back(span); }
  void gap(base::Clock::Ticks end);
  /// Drops the host's spans before `at_`.
  void forget();

  pipeline::SpanClock& spans_;
  std::deque<pipeline::SpanRecord> host_;  ///< ended spans
  base::Clock::Ticks at_;                  ///< end of the time accounted for
  DeviceTime time_;
};

}  // namespace millrace::train
