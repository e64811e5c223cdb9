// Sums over the devices of one process.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace millrace::train {

class DeviceSum {
 public:
  virtual ~DeviceSum() = default;
  /// `vectors`: contiguous, of one length and type, a device each. Replaces the first by the sum of
  /// all, in an order of additions that is the same for every call of that length; the others hold
  /// anything then. Each device does its share once it has done what it was given before.
  virtual void sum(std::vector<at::Tensor>& vectors) = 0;
};

}  // namespace millrace::train
