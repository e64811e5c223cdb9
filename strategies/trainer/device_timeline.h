// A device's time beside the host's (two-clocks contract): every moment of a run is either work on
// a step or a gap, and a gap is told apart by what the trainer thread was doing. Free of LibTorch.
#pragma once

#include <cstddef>
#include <deque>

#include "pipeline/loader/spans.h"

namespace millrace::train {

/// From the run's begin; busy and all gaps add up to it, to the tick.
struct DeviceTime {
  base::Clock::Ticks busy = 0;  ///< in steps, from a step's first work to its last
  pipeline::SpanTicks gaps{};   ///< by the host's span; an evaluation's work counts as its gap

  /// The batch was not ready.
  base::Clock::Ticks gap_load() const {
    return gaps[static_cast<std::size_t>(pipeline::Span::first_batch)] +
           gaps[static_cast<std::size_t>(pipeline::Span::load)];
  }
  base::Clock::Ticks gap_other() const;
};

class DeviceTimeline {
 public:
  /// Follows the host's spans through `spans`, from the begin of the current one on.
  explicit DeviceTimeline(pipeline::SpanClock& spans);
  ~DeviceTimeline() { spans_.log_to(nullptr); }
  DeviceTimeline(const DeviceTimeline&) = delete;
  DeviceTimeline& operator=(const DeviceTimeline&) = delete;

  /// A step that the device worked on from `begin` to `end`, on the host's clock; steps come in
  /// their order. What overlaps the step before is that one's.
  void step(base::Clock::Ticks begin, base::Clock::Ticks end);
  /// All of it up to `end`, when the device has no step left.
  DeviceTime until(base::Clock::Ticks end);

 private:
  void gap(base::Clock::Ticks end);
  /// Forgets what the host did before `at_`.
  void forget();

  pipeline::SpanClock& spans_;
  std::deque<pipeline::SpanClock::Entry> host_;
  base::Clock::Ticks at_;  ///< accounted for up to here
  DeviceTime time_;
};

}  // namespace millrace::train
