// Sums over the devices of one process.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace millrace {

class DeviceSum {
 public:
  virtual ~DeviceSum() = default;
  /// `vectors`: contiguous, of one length and type, a device each. Replaces the first by the sum of
  /// all, added up in an order that is the same for every call of that length; each device does its
  /// share once it has done what it was given before.
  virtual void sum(std::vector<at::Tensor>& vectors) = 0;
};

}  // namespace millrace
