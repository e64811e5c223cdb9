// Data parallel in one process: replicas of the model, a thread each, share every batch. Replicas
// live as long as the strategy (PyTorch's DataParallel makes them anew each step).
#pragma once

#include <memory>
#include <vector>

#include "strategies/torch/device_sum.h"
#include "strategies/torch/torch_strategy.h"
#include "strategies/trainer/replica_threads.h"

namespace millrace::train {

/// On the CPU: groups of train.threads threads; on CUDA: a device each, from the first one on.
/// Replica r takes the slice of each batch that rank r would; each does its own forward, weighted
/// loss and backward; gradients are summed to the first device's, on the CPU in the order of the
/// replicas and on CUDA by NCCL in that of its ring, and its optimiser steps. On the CPU parameters
/// are shared memory; devices are sent them before the next window of gradients. Running statistics
/// are those of the first replica, as in PyTorch's.
class DataParallel final : public TorchStrategy {
 public:
  /// Throws UsageError for a single replica, DeviceError for fewer devices than replicas.
  /// `separate`: replicas on the CPU have parameters of their own too, as tests of what devices do.
  /// `sum`: in place of NCCL, for tests.
  explicit DataParallel(const StrategyOptions& options, bool separate = false,
                        std::unique_ptr<DeviceSum> sum = nullptr);

  ~DataParallel() override;

  std::string device() const override;

 protected:
  Loss gradients(Batch& batch, const StepContext& place, pipeline::SpanClock& spans) override;

 private:
  /// Adds up over the replicas' threads, in the order of the replicas, so that all get the same
  /// bits.
  class ReplicaBarrier;
  class Statistics;

  struct Replica {
    torch::Device device;
    std::shared_ptr<Classifier> model;
    std::unique_ptr<DeviceStreams> streams;  ///< null on the CPU
    Normalization normalize;
  };

  Classifier& replica_of(int replica);
  /// The first replica's parameters to the others.
  void send_weights();
  /// Each replica's part, on its device; not normalised yet.
  std::vector<Samples> scatter(Batch& batch);
  /// Adds the other replicas' gradients to the first one's, and drops them.
  void add_gradients();

  const bool separate_;          ///< each has parameters of its own
  std::vector<Replica> others_;  ///< from the second on
  ReplicaThreads threads_;
  std::unique_ptr<DeviceSum> sum_;                   ///< null on the CPU
  std::shared_ptr<ReplicaBarrier> replica_barrier_;  ///< with sync_batchnorm
};

}  // namespace millrace::train
