// Sums the gradients of replicas on separate devices in few calls: deep networks have many small
// gradients, and a call for each would be slow.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "strategies/torch/cuda_library.h"
#include "strategies/torch/torch_strategy.h"
#include "strategies/trainer/replica_threads.h"

namespace millrace::train {

/// Bytes per exchange, unless one tensor alone is larger. c10d's Reducer uses this size too.
inline constexpr std::int64_t kBucketBytes = std::int64_t{25} << 20;

/// Adds all replicas' gradients to those of the first. `gradients[r]` lies on replica r's device,
/// in the order of the parameters, dense and with the same layout on all devices. The contents of
/// the others are then undefined.
void sum_gradients(const std::vector<std::vector<torch::Tensor>>& gradients, DeviceGroup& group,
                   std::int64_t bytes = kBucketBytes);
/// Copies the first replica's weights to all others': two launches a bucket and device, where
/// copies of single tensors would be one each.
void send_weights(const std::vector<std::vector<torch::Tensor>>& weights, DeviceGroup& group,
                  std::int64_t bytes = kBucketBytes);

// Data parallel strategy in one process: replicas of the model, one thread each, share every batch.
// Replicas live as long as the strategy; PyTorch's DataParallel makes new ones at each step.

/// Replicas are groups of train.threads threads on the CPU, and one device each on CUDA, from the
/// first device on. Replica r takes the same slice of each batch as rank r would, and does its own
/// forward pass, weighted loss and backward pass. Gradients are summed on the first device: on the
/// CPU in the order of the replicas, on CUDA by NCCL in the order of its ring. Its optimizer takes
/// the step. On the CPU replicas share the parameters' memory; devices receive them before the next
/// window of gradients. Running statistics are those of the first replica, as in PyTorch.
class DataParallel final : public TorchStrategy {
 public:
  /// Throws DeviceError for fewer devices than replicas. For tests: `separate` gives replicas on
  /// the CPU their own parameters, as on devices; `group` replaces NCCL.
  explicit DataParallel(const StrategyOptions& options, bool separate = false,
                        std::unique_ptr<DeviceGroup> group = nullptr);

  ~DataParallel() override;

  std::string device() const override;
  std::vector<std::uint64_t> replica_samples() const override { return given_; }

 protected:
  Loss gradients(Batch& batch, const StepContext& place, measure::SpanClock& spans) override;

 private:
  /// Adds up over the replicas' threads, in the order of the replicas, so that all get equal bits.
  class ReplicaBarrier;
  class Statistics;

  struct Replica {
    torch::Device device;
    std::shared_ptr<Classifier> model;
    std::unique_ptr<DeviceStreams> streams;  ///< null on the CPU
    Normalization normalize;
    CorrectCounter& counter;
  };

  Classifier& replica_of(int replica);
  /// Sends the first replica's parameters to the others.
  void send_weights();
  /// Returns each replica's part on its device, not normalised yet.
  std::vector<Samples> scatter(Batch& batch);
  /// Adds the other replicas' gradients to the first one's, and clears them.
  void add_gradients();

  const bool separate_;          ///< each replica has its own parameters
  std::vector<Replica> others_;  ///< replicas from the second on
  ReplicaThreads threads_;
  std::vector<std::uint64_t> given_;                 ///< samples by replica
  std::unique_ptr<DeviceGroup> group_;               ///< null on the CPU
  std::shared_ptr<ReplicaBarrier> replica_barrier_;  ///< only with sync_batchnorm
};

}  // namespace millrace::train
