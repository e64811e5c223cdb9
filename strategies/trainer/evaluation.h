// Results of evaluations and training steps: sums, counts and single answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::train {

/// Exact sums over an evaluation, without padding or dropped samples.
struct Evaluation {
  std::uint64_t images = 0;
  std::uint64_t failed = 0;  ///< samples that could not be loaded; not included in `images`
  double loss_sum = 0;       ///< sum of the samples' cross-entropies, in nats
  std::uint64_t top5 = 0;    ///< samples whose label is among the 5 largest logits
  std::vector<std::uint64_t> samples, correct;  ///< by label
  /// [label][prediction]; empty for more than kMaxConfused classes, because its size is their
  /// square.
  std::vector<std::vector<std::uint64_t>> confusion;

  static constexpr std::size_t kMaxConfused = 1024;
};

/// A model's answer for one sample of an evaluation.
struct Prediction {
  std::int64_t label = 0;
  std::int64_t predicted = 0;  ///< class with the largest logit
  double probability = 0;      ///< its softmax over all classes
};

/// Running counts over training batches, summed over ranks. Samples whose targets are probabilities
/// (mixup, cutmix) have no single right answer and are not counted.
struct TrainCounts {
  std::uint64_t samples = 0;
  std::uint64_t correct = 0;  ///< samples whose label got the largest logit in their step

  TrainCounts& operator+=(const TrainCounts& other) {
    samples += other.samples;
    correct += other.correct;
    return *this;
  }
};

}  // namespace millrace::train
