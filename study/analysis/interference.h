// What else the machine did while a run was timed: time that a hypervisor took, other programs,
// changes of the clock frequency. And which of it is worth a warning beside the results.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace millrace::study {

/// The machine's state at one moment. NaN where the kernel doesn't say.
struct MachineSample {
  double busy_s = 0;        ///< CPU seconds of all cores since the start, by /proc/stat
  double steal_s = 0;       ///< CPU seconds that the host gave to others
  double total_s = 0;       ///< both, and idle
  double load_average = 0;  ///< of the last minute
  double mhz = 0;           ///< mean over the cores
};
/// Reads /proc and /sys below `root` (a test's own); never throws.
MachineSample sample_machine(const std::string& root = "");

/// What happened between two samples around one run.
struct Noise {
  double steal = 0;         ///< part of the machine's CPU time, 0 .. 1
  double others = 0;        ///< the same, of programs that are not the run
  double load_average = 0;  ///< when it began
  double mhz_begin = 0;
  double mhz_end = 0;
};
/// `own_cpu_s`: what the run itself and its parent used.
Noise noise_between(const MachineSample& begin, const MachineSample& end, double own_cpu_s);

nlohmann::ordered_json to_json(const Noise& noise);
Noise noise_from(const nlohmann::ordered_json& json);

/// One line for each kind of noise that runs met, naming how many did and how badly.
std::vector<std::string> noise_warnings(std::span<const Noise> runs);

/// Whether a value lies further than ten standard deviations from the median, the deviation judged
/// by the median of distances (MAD), as hyperfine judges its outliers.
std::vector<bool> outliers(std::span<const double> values);

}  // namespace millrace::study
