// A point in the work that a device was given: reached once all before it is done.
#pragma once

namespace millrace::train {

class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  /// Looks without waiting.
  virtual bool reached() = 0;
  virtual void wait() = 0;
};

}  // namespace millrace::train
