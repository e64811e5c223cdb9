// The way to CUDA: loads libmillrace_cuda.so, or says in one line what is missing. Free of
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
  /// Loads the module and checks that device `index` is there. Must run before the first torch call
  /// of the process, as torch asks once whether there is CUDA. `wanted` is train.device as given.
  /// `devices`: that many from `index` on are needed. Throws DeviceError.
  static CudaLibrary load(const std::string& wanted, int index, int devices = 1);

  std::string device_name() const;
  /// "0000:1b:00.0".
  std::string bus_id() const;
  /// Most bytes that tensors held on the device at one time.
  std::uint64_t peak_bytes() const;
  /// Page-locked memory, from which the device copies while it works. allocate() throws RunError.
  std::shared_ptr<pipeline::SlotMemory> pinned_memory() const;
  /// A graph of the device's work, not captured yet.
  std::unique_ptr<DeviceGraph> make_graph() const;
  /// Sums over the first `devices` devices, by NCCL. Throws DeviceError.
  std::unique_ptr<DeviceSum> make_sum(int devices) const;
  /// Gives a process group NCCL for the device's tensors. Throws DeviceError.
  void add_nccl(c10d::ProcessGroup& group, c10d::Store& store, double timeout_s) const;

 private:
  CudaLibrary(void* library, int index) : library_(library), index_(index) {}

  void* library_;  ///< never unloaded: torch keeps pointers into it
  int index_;
};

}  // namespace millrace::train
