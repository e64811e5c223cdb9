// A strategy reports on its device: its name, its memory, and how well the host kept it busy.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::train {

/// Counts of steps that were about to be submitted when the device had run dry
/// (train.clock=async).
struct Submissions {
  std::uint64_t steps = 0;    ///< submissions that followed another without a wait for all work
  std::uint64_t starved = 0;  ///< those before which the device had finished everything
};

class DeviceReport {
 public:
  virtual ~DeviceReport() = default;

  /// Describes what runs the steps: "cpu (1 thread)", "NVIDIA H200", "simulated (1.1 ms per step)".
  virtual std::string device() const = 0;
  /// Returns the PCI bus id of the (first) device, "0000:1b:00.0", for NVML; empty if it has none.
  virtual std::string bus_id() const { return {}; }
  /// Returns the device's peak memory in bytes so far; 0 on the CPU.
  virtual std::uint64_t peak_device_bytes() const { return 0; }
  /// Returns the counts so far; all 0 with the sync clock and on the CPU.
  virtual Submissions submissions() const { return {}; }
  /// Returns whether the times of FinishedStep cover work alone. Otherwise a device may have waited
  /// between them for the host to submit more of the step.
  virtual bool knows_device_work() const { return false; }
};

}  // namespace millrace::train
