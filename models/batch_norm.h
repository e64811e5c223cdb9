// Batch normalisation that can take its statistics over several replicas or ranks (SyncBatchNorm),
// on any device.
//
// Ioffe, Szegedy, "Batch normalization" (2015). LibTorch offers the synchronised form for CUDA
// alone, in pieces; this one consists of ordinary tensor operations.
#pragma once

#include <torch/torch.h>

#include <memory>

namespace millrace::train {

/// Sums over all replicas or ranks.
class StatisticsReducer {
 public:
  virtual ~StatisticsReducer() = default;
  /// Replaces `sums`, a contiguous float64 vector on the input's device, by its sum over all
  /// participants. Each of them calls this equally often and in the same order, from the thread of
  /// its forward or backward pass.
  virtual void all_reduce(torch::Tensor& sums) = 0;
};

/// Without a reducer, has the parameters, buffers, defaults (eps 1e-5, momentum 0.1) and arithmetic
/// of torch::nn::BatchNorm2d.
///
/// With a reducer, training normalises by the mean and variance of all participants' samples:
/// forward reduces (Σx, Σx², n), backward (Σdy, Σdy·x̂). A participant without samples passes N x C
/// x H x W with N = 0 through forward and backward like the others, and thereby takes part in both.
/// Gradients of weight and bias cover its own samples only, and must be summed over all
/// participants.
class BatchNormImpl : public torch::nn::Module {
 public:
  explicit BatchNormImpl(std::int64_t channels);
  /// Returns images of the input's shape, N x channels x H x W. Throws RunError in training if
  /// there is only one value per channel. With a reducer it checks on the CPU only, because other
  /// devices would have to be waited for.
  torch::Tensor forward(const torch::Tensor& input);
  /// nullptr: normalises by its own samples only.
  void set_reducer(std::shared_ptr<StatisticsReducer> reducer) { reducer_ = std::move(reducer); }

  torch::Tensor weight, bias;               ///< scale and shift, per channel
  torch::Tensor running_mean, running_var;  ///< per channel; used in evaluation
  torch::Tensor num_batches_tracked;        ///< scalar, int64

 private:
  torch::Tensor forward_reduced(const torch::Tensor& input);

  std::shared_ptr<StatisticsReducer> reducer_;
};
TORCH_MODULE(BatchNorm);

/// Sets the reducer of every batch norm in `model`, and returns their number.
std::size_t set_statistics_reducer(torch::nn::Module& model,
                                   const std::shared_ptr<StatisticsReducer>& reducer);

}  // namespace millrace::train
