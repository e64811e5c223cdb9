// Access to CUDA: loads libmillrace_cuda.so, or says in one line what is missing. Independent of
// LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pipeline/loader/slot_memory.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace millrace::train {

class DeviceGraph;
class DeviceSum;

class CudaLibrary {
 public:
  /// Loads the module and checks that device `index`, and `devices` devices in all from it on,
  /// exist. Must run before the process's first torch call, because torch checks for CUDA only
  /// once. `wanted` is train.device as given. Throws DeviceError.
  static CudaLibrary load(const std::string& wanted, int index, int devices = 1);

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
  /// Returns NCCL sums over the first `devices` devices. Throws DeviceError.
  std::unique_ptr<DeviceSum> make_sum(int devices) const;
  /// Adds NCCL for the device's tensors to a process group. Throws DeviceError.
  void add_nccl(c10d::ProcessGroup& group, c10d::Store& store, double timeout_s) const;

 private:
  CudaLibrary(void* library, int index) : library_(library), index_(index) {}

  void* library_;  ///< never unloaded, because torch keeps pointers into it
  int index_;
};

}  // namespace millrace::train
