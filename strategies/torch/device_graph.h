// Work that a device is given once, to be given to it again as a whole (a CUDA graph).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace millrace::train {

class DeviceGraph {
 public:
  /// Gives the device work and returns the tensors that hold what comes of it.
  using Work = std::function<std::vector<at::Tensor>()>;

  virtual ~DeviceGraph() = default;

  /// Records what `work` gives to the current stream, which must not be the device's own; the
  /// device does none of it. Returns what `work` does: every replay writes to the memory of these
  /// tensors, and reads and writes all other memory where it was at the time of the recording. To
  /// be called once. Where `work` throws, its exception goes through and the graph is of no use.
  virtual std::vector<at::Tensor> capture(const Work& work) = 0;
  /// Gives all that was recorded to the current stream, in one call. None of `work`'s host code
  /// runs. Random numbers follow from the seed that the device's default generator has now.
  virtual void replay() = 0;
};

}  // namespace millrace::train
