// Access to CUDA: loads libmillrace_cuda.so, or says in one line what is missing, and declares the
// graphs and groups of devices that it makes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/private_api.h"
#include "pipeline/loader/slot_memory.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace millrace::train {

/// Interface of a CUDA graph: work that is recorded once and launched again as a whole.
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
  /// Returns an uncaptured graph that shares this one's memory once both are captured, this one
  /// first. Replays of the two must not overlap.
  virtual std::unique_ptr<DeviceGraph> sibling() = 0;
};

/// Interface of exchanges between the devices of one process. Each device does its part after its
/// earlier work.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  /// Replaces the first of `vectors` by the sum of all. They are contiguous, of one length and
  /// type, and lie on one device each. The order of additions is fixed for a given length. The
  /// contents of the other vectors are then undefined.
  virtual void sum(std::vector<at::Tensor>& vectors) = 0;
  /// Copies the first of such vectors to all others.
  virtual void broadcast(std::vector<at::Tensor>& vectors) = 0;
};

class CudaLibrary {
 public:
  /// Loads the module and checks that device `index`, and `devices` devices in all from it on,
  /// exist, then calls use(index). Must run before the process's first torch call, because torch
  /// checks for CUDA only once. `setting` is what asked for the device, as given:
  /// "train.device=cuda"; if it is empty, messages name none. Throws DeviceError.
  MILLRACE_PRIVATE_API static CudaLibrary load(const std::string& setting, int index,
                                               int devices = 1);

  /// Makes a device the calling thread's current one. Until then that is device 0, on which every
  /// call of CUDA that names no device, such as that of an event's destructor, would create a
  /// context.
  void use(int device) const;
  std::string device_name() const;
  /// Returns the PCI bus id, "0000:1b:00.0".
  std::string bus_id() const;
  /// Returns the peak number of bytes that tensors held on the device.
  std::uint64_t peak_bytes() const;
  /// Returns page-locked memory, from which the device copies while it computes. allocate() throws
  /// RunError.
  std::shared_ptr<pipeline::SlotMemory> pinned_memory() const;
  /// Returns an uncaptured graph of the device's work.
  std::unique_ptr<DeviceGraph> make_graph() const;
  /// Returns NCCL's group of the first `devices` devices. Throws DeviceError.
  std::unique_ptr<DeviceGroup> make_group(int devices) const;
  /// Adds NCCL for the device's tensors to a process group. Throws DeviceError.
  void add_nccl(c10d::ProcessGroup& group, c10d::Store& store, double timeout_s) const;

 private:
  CudaLibrary(void* library, int index) : library_(library), index_(index) {}

  void* library_;  ///< never unloaded, because torch keeps pointers into it
  int index_;
};

}  // namespace millrace::train
