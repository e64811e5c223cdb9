// Updates of a run, with the steps that set something up kept apart from all others.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "pipeline/loader/spans.h"

namespace millrace::study {

class UpdateTimes {
 public:
  void add(const pipeline::StepRecord& step);

  /// Number and seconds of the steps of one kind.
  struct Sum {
    std::uint64_t steps = 0;
    double seconds = 0;
  };
  const Sum& of(pipeline::SetUp kind) const { return sums_[static_cast<std::size_t>(kind)]; }
  /// Returns the sum over all kinds but SetUp::none.
  Sum set_up() const;
  /// Return seconds per step that sets nothing up; NaN if there is none. The median is exact for
  /// kExact steps, and that of the first kExact steps in a longer run.
  double mean() const;
  double median() const;

  static constexpr std::size_t kExact = 1 << 20;

 private:
  std::array<Sum, pipeline::kSetUpCount> sums_{};
  std::vector<float> seconds_;  ///< of the steps that set nothing up
};

/// Returns {"first": {"steps": 1, "update_s": 0.2}, ...} with the kinds that occurred.
nlohmann::ordered_json to_json(const UpdateTimes& times);

}  // namespace millrace::study
