// Interface of sums over the devices of one process.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace millrace::train {

class DeviceSum {
 public:
  virtual ~DeviceSum() = default;
  /// Replaces the first of `vectors` by the sum of all. They are contiguous, of one length and
  /// type, and lie on one device each. The order of additions is fixed for a given length. The
  /// contents of the other vectors are then undefined. Each device does its part after its earlier
  /// work.
  virtual void sum(std::vector<at::Tensor>& vectors) = 0;
};

}  // namespace millrace::train
