// A device's two streams: its work, and beside it copies of batches from the host. c10's generic
// streams and events: no CUDA header is needed, and a test can stand in for the device.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>

#include "base/clock.h"
#include "strategies/trainer/device_mark.h"

namespace millrace::train {

class DeviceStreams {
 public:
  virtual ~DeviceStreams() = default;

  /// Begins to copy `host`, which must stay until the mark of the next join() is reached.
  virtual torch::Tensor copy(const torch::Tensor& host) = 0;
  /// What the device is given from now on waits for the copies so far. Reached when these are done.
  virtual std::unique_ptr<DeviceMark> join() = 0;
  /// Reached when all work that the device was given so far is done.
  virtual std::unique_ptr<DeviceMark> mark() = 0;
  /// When the device reached one of mark()'s; to be asked in the order in which they were made,
  /// once they are reached.
  virtual base::Clock::Ticks time_of(std::unique_ptr<DeviceMark> mark) = 0;
  /// Sets the device's clock by the host's, waiting for the device. To be called before the first
  /// mark() and, as clocks drift apart, from time to time when none is open.
  virtual void set_clock() = 0;
  /// What the device is given within `work` goes to another stream, always the same one, which
  /// waits for all before and for which all after waits. What that stream's memory held may be
  /// given back at any time: it is used again within `work` alone.
  virtual void aside(const std::function<void()>& work) = 0;
  /// A number on the host that the device can write to at its own time.
  virtual torch::Tensor host_number() = 0;
};

/// Null for the CPU, which has no queue.
std::unique_ptr<DeviceStreams> make_device_streams(torch::Device device);

}  // namespace millrace::train
