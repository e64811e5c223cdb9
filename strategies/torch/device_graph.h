// Interface of a CUDA graph: work that is recorded once and launched again as a whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace millrace::train {

class DeviceGraph {
 public:
  /// Launches work on the device and returns the tensors that hold its results.
  using Work = std::function<std::vector<at::Tensor>()>;

  virtual ~DeviceGraph() = default;

  /// Records the work that `work` launches on the current stream, which must not be the default
  /// stream; the device executes none of it. Returns the tensors that `work` returns. Every replay
  /// writes to the memory of these tensors, and reads and writes all other memory at the addresses
  /// of the recording. Call it once. If `work` throws, passes the exception on, and the graph is
  /// unusable.
  virtual std::vector<at::Tensor> capture(const Work& work) = 0;
  /// Launches the recorded work on the current stream, in one call, without running `work`'s host
  /// code. Random numbers follow from the default generator's current seed.
  virtual void replay() = 0;
};

}  // namespace millrace::train
