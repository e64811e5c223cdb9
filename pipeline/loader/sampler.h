// Which samples an epoch holds, at which positions. What a position holds depends on the options,
// the seed and the epoch alone, so that any worker and any rank can start anywhere (determinism
// contract).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/private_api.h"
#include "millrace/call.hpp"
#include "millrace/loader.h"
#include "millrace/reader.h"
#include "millrace/transform.h"
#include "pipeline/loader/shuffled_order.h"

namespace millrace::pipeline {

class EpochOrder;

/// Throws UsageError for options of [sampler] that do not fit each other, the batch or a data set
/// of `count` samples.
void check_sampler(const LoaderOptions& options, std::uint64_t count);

/// Draws the samples of each epoch. Thread-safe.
///
/// Memory: none that grows with the data set for `shuffle` and `repeat`; per sample 16 bytes for
/// weights and replacement, 24 without replacement, and 8 for what goes by class, besides 8 while
/// the labels are read.
class MILLRACE_PRIVATE_API Sampler {
 public:
  /// Reads the labels of all samples if `options` need them. Throws UsageError if the set lacks
  /// classes, and what Reader::label() throws. `options` must outlive it.
  Sampler(const LoaderOptions& options, const Reader& reader);

  /// Returns the order of an epoch; valid as long as this.
  EpochOrder order(std::uint32_t epoch) const;
  /// Returns whether an epoch has an order: SamplerOptions::order may have none.
  bool has_order(std::uint32_t epoch) const;
  /// Returns the key of a sample's random draws. One that may come again in an epoch is augmented
  /// in another way each time.
  SampleKey key(std::uint32_t epoch, std::uint64_t position, std::uint64_t index) const {
    return {options_.seed, epoch, repeats() ? position : index};
  }

 private:
  friend class EpochOrder;
  using List = std::vector<std::uint64_t>;

  /// A column of Vose's table: a draw below `threshold` is the column's own sample.
  struct Column {
    std::uint64_t threshold;
    std::uint64_t alias;
  };

  bool repeats() const;
  void sort_by_class(const Reader& reader);
  void make_columns();
  std::shared_ptr<const List> drawn(std::uint32_t epoch, std::uint64_t key) const;

  const LoaderOptions& options_;
  std::uint64_t count_;
  std::vector<Column> columns_;
  // Samples of class c, which has some, are members_[starts_[c]] to members_[starts_[c + 1] - 1].
  List members_, starts_;
  /// An epoch without replacement. Batches of two epochs are made at the same time, so each has a
  /// lock of its own: those of the one are not held up while the other is drawn.
  struct Drawn {
    std::mutex drawing;
    std::uint32_t epoch = 0;
    std::shared_ptr<const List> list;  ///< null: not drawn yet
  };
  mutable Drawn drawn_[2];  ///< by epoch modulo 2
};

/// Maps a position in an epoch to a sample's index.
class MILLRACE_PRIVATE_API EpochOrder {
 public:
  std::uint64_t operator()(std::uint64_t position) const;
  /// Returns a sample to take the place of one that failed.
  std::uint64_t another(Draw& draw) const;

 private:
  friend class Sampler;
  EpochOrder(const Sampler& sampler, std::uint32_t epoch);
  std::uint64_t weighted(std::uint64_t position) const;
  std::uint64_t balanced(std::uint64_t position) const;
  std::uint64_t of_class(std::uint64_t number, std::uint64_t place) const;

  const Sampler& sampler_;
  ShuffledOrder shuffled_;
  std::shared_ptr<const Sampler::List> drawn_;  ///< without replacement, or given
};

}  // namespace millrace::pipeline
