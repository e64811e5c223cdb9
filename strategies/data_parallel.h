// Data parallel in one process: replicas of the model, a thread each, share every batch. Replicas
// live as long as the strategy (PyTorch's DataParallel makes them anew each step).
#pragma once

#include <memory>
#include <vector>

#include "strategies/replica_threads.h"
#include "strategies/torch_strategy.h"

namespace millrace {

/// On the CPU: groups of train.threads threads. Replica r takes the slice of each batch that rank r
/// would; each does its own forward, weighted loss and backward; gradients are summed in the order
/// of the replicas, the first one's optimiser steps. Parameters are shared memory, so nothing needs
/// to be sent back. Running statistics are those of the first replica, as in PyTorch's.
class DataParallel final : public TorchStrategy {
 public:
  /// Throws UsageError for a single replica or a device that is not the CPU.
  explicit DataParallel(const StrategyOptions& options);

  ~DataParallel() override;

  std::string device() const override;

 protected:
  Loss gradients(Batch& batch, const StepPlace& place, SpanClock& spans) override;

 private:
  /// Adds up over the replicas' threads, in the order of the replicas, so that all get the same
  /// bits.
  class Meeting;
  class Statistics;

  Classifier& replica_of(int replica);

  std::vector<std::shared_ptr<Classifier>> replicas_;  ///< from the second on
  ReplicaThreads threads_;
  std::shared_ptr<Meeting> meeting_;  ///< with sync_batchnorm
};

}  // namespace millrace
