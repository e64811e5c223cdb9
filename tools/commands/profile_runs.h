// Short `millrace train` children of a profile, and figures from their records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace millrace::tools {

struct RunLength {
  std::uint64_t warm_up = 0;  ///< steps that are not counted
  std::uint64_t steps = 0;    ///< counted steps
  std::uint64_t window = 20;  ///< steps per window
};

/// Returns a length of about `seconds`, in whole epochs if these are short.
RunLength run_length(double step_s, double seconds, int prefetch, std::uint64_t batches_per_epoch);

/// Figures over the counted steps.
struct RunFigures {
  /// Images/s over load + update. With five windows or more, the median window's, which excludes
  /// interruptions by other programs; with fewer, over all steps.
  double images_per_s = 0;
  double step_s = 0;                           ///< load + update of the median step
  double load_s = 0, update_s = 0, log_s = 0;  ///< seconds per step
  /// Share of the machine's CPU time during the child that other processes used or the hypervisor
  /// withheld, 0..1. NaN if the kernel does not report it.
  double others = 0;
  nlohmann::ordered_json summary;  ///< summary of the whole child
};

class ChildRuns {
 public:
  /// `recipe` holds the arguments [RECIPE] [key=value ...] of all children. Their records go below
  /// `folder`.
  ChildRuns(std::vector<std::string> recipe, std::filesystem::path folder);

  /// Runs a child. Throws the error that it ended with, and RunError if it was interrupted or left
  /// no records.
  RunFigures run(const std::string& name, const std::vector<std::string>& overrides,
                 const RunLength& length);
  int started() const { return started_; }

 private:
  std::vector<std::string> recipe_;
  std::filesystem::path folder_;
  int started_ = 0;
};

}  // namespace millrace::tools
