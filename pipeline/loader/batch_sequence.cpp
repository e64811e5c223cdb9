// Cuts epochs into batches.
#include "pipeline/loader/batch_sequence.h"

#include <fmt/format.h>

#include <algorithm>

#include "millrace/error.h"

namespace millrace::pipeline {

BatchSequence::BatchSequence(const LoaderOptions& options, const Sampler& sampler,
                             std::uint64_t samples, int group)
    : options_(options),
      sampler_(sampler),
      samples_(epoch_samples(options, samples)),
      per_epoch_(millrace::batches_per_epoch(options, samples)),
      group_(std::max(1, group)) {  // a whole batch has one rank
  if (options_.first_batch > end())
    throw UsageError(fmt::format("batch {} is past the last one: there are {} in {} epochs",
                                 options_.first_batch, end(), options_.epochs));
}

BatchId BatchSequence::at(std::uint64_t ordinal) const {
  BatchId id;
  id.ordinal = ordinal;
  id.epoch = static_cast<std::uint32_t>(ordinal / per_epoch_);
  id.index = ordinal % per_epoch_;
  id.global = global_count(id.index);
  const Slice slice = slice_of(id.global);
  id.first = id.index * static_cast<std::uint64_t>(options_.batch) +
             static_cast<std::uint64_t>(slice.first);
  id.count = sampler_.has_order(id.epoch) ? slice.count : 0;
  return id;
}

std::uint64_t BatchSequence::samples_per_epoch() const {
  return options_.drop_last ? per_epoch_ * static_cast<std::uint64_t>(options_.batch) : samples_;
}

std::int64_t BatchSequence::largest() const {
  return std::max({std::int64_t{1}, slice_of(global_count(0)).count,
                   slice_of(global_count(per_epoch_ - 1)).count});
}

std::int64_t BatchSequence::global_count(std::uint64_t index) const {
  const auto batch = static_cast<std::uint64_t>(options_.batch);
  return static_cast<std::int64_t>(std::min(batch, samples_ - index * batch));
}

Slice BatchSequence::slice_of(std::int64_t global) const {
  return rank_slice(global, options_.rank, options_.world, group_);
}

}  // namespace millrace::pipeline
