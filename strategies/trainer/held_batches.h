// Batches that a device still reads. Their slots return to the loader once the device has copied
// them. Independent of LibTorch.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "millrace/loader.h"
#include "pipeline/loader/spans.h"
#include "strategies/trainer/device_mark.h"

namespace millrace::train {

class InFlightBatches {
 public:
  /// Keeps `batch` until all marks of `until` are reached.
  void hold(Batch batch, std::vector<std::unique_ptr<DeviceMark>> until);
  /// Gives back batches that the device has read, in order. If more than `most` are left, waits for
  /// the oldest in device_wait.
  void keep_at_most(std::size_t most, pipeline::SpanClock& spans);
  std::size_t count() const { return held_.size(); }

 private:
  struct Held {
    Batch batch;
    std::vector<std::unique_ptr<DeviceMark>> until;
  };
  std::deque<Held> held_;  ///< oldest first
};

}  // namespace millrace::train
