// Announces the samples of the next batches.
#include "pipeline/loader/lookahead.h"

#include <algorithm>

namespace millrace::pipeline {

void Lookahead::announce(std::uint64_t ordinal) {
  const std::uint64_t ahead = reader_.lookahead();
  if (ahead == 0) return;
  const std::uint64_t behind = std::min(end_, ordinal + 1 + (ahead + batch_ - 1) / batch_);
  for (next_ = std::max(next_, ordinal); next_ < behind; ++next_) {
    const BatchId id = batches_.at(next_);
    const EpochOrder order = sampler_.order(id.epoch);
    for (std::int64_t i = 0; i < id.count; ++i)
      reader_.expect(order(id.first + static_cast<std::uint64_t>(i)));
  }
}

}  // namespace millrace::pipeline
