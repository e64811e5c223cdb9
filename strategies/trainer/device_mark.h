// A point in a device's queue, reached once all earlier work is done.
#pragma once

namespace millrace::train {

class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  /// Checks without waiting.
  virtual bool reached() = 0;
  virtual void wait() = 0;
};

}  // namespace millrace::train
