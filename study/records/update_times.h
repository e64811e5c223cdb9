// Updates of a run.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "measure/step_record.h"
#include "study/records/summary.h"

namespace millrace::study {

/// Updates of a run, with the steps that set something up kept apart from all others.
class UpdateTimes {
 public:
  void add(const measure::StepRecord& step);

  /// Number and seconds of the steps of one kind.
  struct Sum {
    std::uint64_t steps = 0;
    double seconds = 0;
    double device_wait_s = 0;  ///< part of `seconds`: the host waited for the device
  };
  const Sum& of(measure::SetUp kind) const { return sums_[static_cast<std::size_t>(kind)]; }
  /// Returns the sum over all kinds but SetUp::none.
  Sum set_up() const;
  /// Return seconds per step that sets nothing up; NaN if there is none. The median is exact for
  /// kExact steps, and that of the first kExact steps in a longer run.
  double mean() const;
  double median() const;
  /// Returns the 90th percentile over the median of the same steps: 1 for equal ones, and where
  /// there are none.
  double spread() const;

  static constexpr std::size_t kExact = 1 << 20;

 private:
  std::array<Sum, measure::kSetUpCount> sums_{};
  std::vector<float> seconds_;  ///< of the steps that set nothing up
};

/// Returns the sums of the kinds that occurred.
Named<SetUpRecord> set_up_records(const UpdateTimes& times);

}  // namespace millrace::study
