#include "study/records/wait_records.h"

#include <cstddef>

namespace millrace::study {

Named<double> by_part(const measure::PartSeconds& seconds) {
  Named<double> parts;
  for (std::size_t i = 0; i < measure::kPartCount; ++i)
    parts.emplace_back(measure::kPartNames[i], seconds[i]);
  return parts;
}

Named<QuantilesRecord> step_quantiles(const measure::WaitBreakdown& blame) {
  const auto quantiles = [](const auto& at) { return QuantilesRecord{at(0.5), at(0.9), at(0.99)}; };
  Named<QuantilesRecord> all;
  all.emplace_back("load", quantiles([&](double q) { return blame.load_quantile(q); }));
  for (std::size_t i = 0; i < measure::kPartCount; ++i)
    all.emplace_back(measure::kPartNames[i], quantiles([&](double q) {
                       return blame.quantile(static_cast<measure::Part>(i), q);
                     }));
  return all;
}

}  // namespace millrace::study
