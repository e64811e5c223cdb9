// The order of samples in an epoch that takes each of them once.
#pragma once

#include <cstdint>

#include "base/permutation.h"
#include "base/private_api.h"
#include "millrace/loader.h"

namespace millrace::pipeline {

/// Maps a position in an epoch to a sample's index.
class MILLRACE_PRIVATE_API ShuffledOrder {
 public:
  ShuffledOrder(std::uint64_t count, Shuffle shuffle, std::uint64_t seed, std::uint32_t epoch);
  std::uint64_t operator()(std::uint64_t position) const;
  /// Returns the number that keys the epoch's random draws.
  std::uint64_t key() const { return key_; }

 private:
  std::uint64_t count_;
  Shuffle shuffle_;
  std::uint64_t key_;
  base::Permutation order_;      ///< order of samples (global) or of windows (window)
  std::uint64_t missing_ = 0;    ///< samples that the last window lacks
  std::uint64_t short_end_ = 0;  ///< first position behind the short window
};

}  // namespace millrace::pipeline
