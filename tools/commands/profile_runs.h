// Short `millrace train` children of a profile, and what their records say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace millrace::tools {

struct RunLength {
  std::uint64_t warm_up = 0;  ///< steps that don't count
  std::uint64_t steps = 0;    ///< that do
  std::uint64_t window = 20;  ///< steps that are looked at together
};

/// So many steps that take about `seconds`, in whole epochs where these are short.
RunLength run_length(double step_s, double seconds, int prefetch, std::uint64_t batches_per_epoch);

/// Over the steps that count.
struct RunFigures {
  /// Over load + update: of five windows or more the middle one's, so that what interrupts single
  /// ones (other programs) falls out; of fewer, all steps'.
  double images_per_s = 0;
  double step_s = 0;                           ///< load + update, of the middle step
  double load_s = 0, update_s = 0, log_s = 0;  ///< a step
  /// Of the machine's CPU time while the child ran, 0..1: what other processes used or the
  /// hypervisor withheld.
  double others = 0;
  nlohmann::ordered_json summary;  ///< of the whole child
};

class ChildRuns {
 public:
  /// `recipe`: [RECIPE] [key=value ...] of all children; their records go below `folder`.
  ChildRuns(std::vector<std::string> recipe, std::filesystem::path folder);

  /// Throws what the child ended with, and RunError when it was interrupted or left no records.
  RunFigures run(const std::string& name, const std::vector<std::string>& overrides,
                 const RunLength& length);
  int started() const { return started_; }

 private:
  std::vector<std::string> recipe_;
  std::filesystem::path folder_;
  int started_ = 0;
};

}  // namespace millrace::tools
