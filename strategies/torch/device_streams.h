// A device's two streams: one for work, one for copies of batches from the host. Uses c10's generic
// streams and events, so that no CUDA header is needed and tests can replace the device.
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

  /// Starts to copy `host`, which must stay unchanged until the mark of the next join() is reached.
  virtual torch::Tensor copy(const torch::Tensor& host) = 0;
  /// Makes later work wait for the copies so far. Returns a mark that is reached when these are
  /// done.
  virtual std::unique_ptr<DeviceMark> join() = 0;
  /// Returns a mark that is reached when all work so far is done.
  virtual std::unique_ptr<DeviceMark> mark() = 0;
  /// Returns the time at which the device reached a mark of mark(), on the host's clock. Ask for
  /// marks in the order of their creation, after they are reached.
  virtual base::Clock::Ticks time_of(std::unique_ptr<DeviceMark> mark) = 0;
  /// Aligns the device's clock with the host's, waiting for the device. Call it before the first
  /// mark() and, because clocks drift, again from time to time while no mark is open.
  virtual void set_clock() = 0;
  /// Runs `work` with a side stream as the current one, always the same. The side stream waits for
  /// all earlier work, and later work waits for it. Its memory may be freed at any time: only
  /// `work` uses it again.
  virtual void aside(const std::function<void()>& work) = 0;
  /// Returns a number in host memory that the device can write asynchronously.
  virtual torch::Tensor host_number() = 0;
};

/// Returns null for the CPU, which has no queue.
std::unique_ptr<DeviceStreams> make_device_streams(torch::Device device);

}  // namespace millrace::train
