// Announces to a reader which samples it will be asked for.
#pragma once

#include <cstdint>

#include "millrace/reader.h"
#include "pipeline/loader/batch_sequence.h"
#include "pipeline/loader/sampler.h"

namespace millrace::pipeline {

/// Calls Reader::expect() once for each sample, Reader::lookahead() samples before it is read.
class Lookahead {
 public:
  /// Batches from `end` on are not read. All must outlive it.
  Lookahead(const Reader& reader, const Sampler& sampler, const BatchSequence& batches,
            std::int64_t batch, std::uint64_t end)
      : reader_(reader),
        sampler_(sampler),
        batches_(batches),
        batch_(static_cast<std::uint64_t>(batch)),
        end_(end) {}

  /// Announces the samples that the reader will be asked for once it is done with this batch.
  /// Batches come in order.
  void announce(std::uint64_t ordinal);

 private:
  const Reader& reader_;
  const Sampler& sampler_;
  const BatchSequence& batches_;
  const std::uint64_t batch_;  ///< samples per batch
  const std::uint64_t end_;
  std::uint64_t next_ = 0;  ///< first batch that has not been announced
};

}  // namespace millrace::pipeline
