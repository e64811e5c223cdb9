// Options of a strategy with a model.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "millrace/error.h"
#include "millrace/recipe.h"
#include "millrace/transform.h"
#include "strategies/control/rank.h"

namespace millrace::train {

/// Callbacks into the program for strategies with several ranks.
struct RankHooks {
  /// Set when a signal asks this process to stop, and by the strategy when another rank was asked.
  std::atomic<bool>* interrupted = nullptr;
  /// Called once the ranks watch each other. From then on the strategy handles interrupts, even
  /// while this rank waits for another.
  std::function<void()> watched = [] {};
  /// Ends the process, on a background thread, because another rank has failed, or because an
  /// interrupt ends the run where no step can be completed.
  std::function<void(const Error&)> leave;
};

/// The recipe, whose keys a strategy reads itself, and the facts that it needs besides. Crosses
/// into the LibTorch library.
struct StrategyOptions {
  /// Holds the keys of [model] and [train], and those of [output] that say how to normalise.
  /// model.ops must be resolved.
  Recipe recipe{{}};
  int classes = 10;
  /// Samples of batches: f32, or u8 with output.normalize=device.
  SampleSpec sample{.size = {}, .channels = 1};
  std::optional<Size> eval_size;  ///< of samples that are evaluated; empty: that of `sample`
  std::string device = "cpu";     ///< cpu, cuda, cuda:N: the rank's own
  int threads = 1;                ///< of LibTorch, per replica
  /// Size of the batches, over all ranks, whose passes train.cuda_graphs captures; 0: none. For
  /// `single` on a CUDA device, and with train.cuda_graphs=step for `ddp` too.
  std::int64_t graph_samples = 0;
  RankInfo rank;    ///< for ddp
  RankHooks hooks;  ///< for ddp
};

}  // namespace millrace::train
