// The batches of all epochs, and which samples of an epoch belong to each.
#pragma once

#include <cstdint>

#include "millrace/loader.h"
#include "pipeline/loader/sampler.h"
#include "pipeline/loader/slice.h"
#include "pipeline/loader/slot.h"

namespace millrace::pipeline {

/// Cuts epochs into batches, and batches into the slices of ranks. A batch is identified by its
/// ordinal over all epochs. Never changes.
class BatchSequence {
 public:
  /// `samples` is the size of the data set. Ops mix groups of `group` neighbours, or whole batches
  /// if it is MILLRACE_WHOLE_BATCH. Throws UsageError if LoaderOptions::first_batch lies behind the
  /// end. `options`, which were checked, and `sampler` must outlive it.
  BatchSequence(const LoaderOptions& options, const Sampler& sampler, std::uint64_t samples,
                int group);

  BatchId at(std::uint64_t ordinal) const;
  /// Returns the ordinal behind the last batch.
  std::uint64_t end() const { return per_epoch_ * options_.epochs; }
  std::uint64_t batches_per_epoch() const { return per_epoch_; }
  std::uint64_t samples_per_epoch() const;
  /// Returns the number of samples of the rank's largest slice, at least 1.
  std::int64_t largest() const;

 private:
  std::int64_t global_count(std::uint64_t index) const;
  Slice slice_of(std::int64_t global) const;

  const LoaderOptions& options_;
  const Sampler& sampler_;
  const std::uint64_t samples_;  ///< per epoch
  const std::uint64_t per_epoch_;
  const int group_;
};

}  // namespace millrace::pipeline
