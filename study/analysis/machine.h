// The machine that a run was measured on, and what else it did meanwhile.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "study/records/summary.h"

namespace millrace::study {

/// The machine that a run was measured on.
struct MachineFacts {
  std::string cpu;                 ///< the processor's model; empty if unknown
  std::uint64_t memory_bytes = 0;  ///< 0 if unknown
  std::vector<std::string> gpus;   ///< model of each GPU that NVIDIA's kernel driver has
};

/// Reads the facts below `root`/proc. Starts no GPU and loads no library.
MachineFacts machine_facts(const std::string& root = "");

/// Returns a line such as "Intel(R) Xeon(R) CPU @ 2.20GHz, 2 cores, 8.3 GB memory, 2 x NVIDIA H200"
/// from a summary's `cpu`, `cores`, `memory_bytes` and `gpus`. Leaves out what is missing.
std::string machine_line(const Summary& summary);

// Records what else the machine did while a run was timed: CPU time stolen by the hypervisor, other
// programs, changes of the clock frequency. Decides which of it deserves a warning beside the
// results.

/// The state of the cores that this process may use, at one moment: programs on other cores disturb
/// no run of it. Members are NaN if the kernel does not report them.
struct MachineSample {
  double busy_s = 0;        ///< CPU seconds of these cores since boot, from /proc/stat
  double steal_s = 0;       ///< CPU seconds that the host gave to other guests
  double total_s = 0;       ///< busy, stolen and idle
  double load_average = 0;  ///< over the last minute
  double mhz = 0;           ///< mean over all cores of the machine
};
/// Reads /proc and /sys below `root` (tests pass their own). Never throws.
MachineSample sample_machine(const std::string& root = "");

/// Disturbances between two samples taken around one run.
struct Noise {
  double steal = 0;         ///< share of these cores' CPU time, 0..1
  double others = 0;        ///< share used by other programs, 0..1
  double load_average = 0;  ///< at the start of the run
  double mhz_begin = 0;
  double mhz_end = 0;
};
/// Compares two samples. `own_cpu_s` is the CPU time of the run and its parent process.
Noise noise_between(const MachineSample& begin, const MachineSample& end, double own_cpu_s);

nlohmann::ordered_json to_json(const Noise& noise);
Noise noise_from(const nlohmann::ordered_json& json);

/// Returns one line for each kind of noise, with the number of runs affected and the worst case.
std::vector<std::string> noise_warnings(std::span<const Noise> runs);

/// Marks values further than ten standard deviations from the median. The deviation is estimated by
/// the median absolute deviation (MAD), as hyperfine does.
std::vector<bool> outliers(std::span<const double> values);

}  // namespace millrace::study
