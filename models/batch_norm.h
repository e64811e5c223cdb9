// Batch normalisation whose statistics may be taken over several replicas or ranks
// (SyncBatchNorm), on any device.
//
// Ioffe, Szegedy, "Batch normalization" (2015). LibTorch has the synchronised form for CUDA alone,
// as pieces; here it is written with ordinary tensor operations.
#pragma once

#include <torch/torch.h>

#include <memory>

namespace millrace::train {

/// Adds up over all replicas or ranks.
class StatisticsReducer {
 public:
  virtual ~StatisticsReducer() = default;
  /// `sums`: contiguous float64 vector on the input's device. Replaces it, in place, by its sum
  /// over all participants; each of them calls this equally often and in the same order, from the
  /// thread of its forward or backward pass.
  virtual void all_reduce(torch::Tensor& sums) = 0;
};

/// torch::nn::BatchNorm2d's parameters, buffers, defaults (eps 1e-5, momentum 0.1) and arithmetic,
/// as long as no reducer is set.
///
/// With a reducer, training normalises by the mean and variance of all participants' samples:
/// forward reduces (Σx, Σx², n), backward (Σdy, Σdy·x̂). A participant without samples (N = 0)
/// passes N x C x H x W with N = 0 through forward and backward like the others, and by that joins
/// both. Gradients of weight and bias are those of its own samples, to be summed with all others.
class BatchNormImpl : public torch::nn::Module {
 public:
  explicit BatchNormImpl(std::int64_t channels);
  /// N x channels x H x W to the same. Throws RunError in training when there is but one value a
  /// channel (with a reducer: on the CPU only, other devices would have to be waited for).
  torch::Tensor forward(const torch::Tensor& input);
  /// nullptr: own samples only.
  void set_reducer(std::shared_ptr<StatisticsReducer> reducer) { reducer_ = std::move(reducer); }

  torch::Tensor weight, bias;               ///< channels; scale and shift
  torch::Tensor running_mean, running_var;  ///< channels; what evaluation normalises by
  torch::Tensor num_batches_tracked;        ///< scalar, int64

 private:
  torch::Tensor forward_reduced(const torch::Tensor& input);

  std::shared_ptr<StatisticsReducer> reducer_;
};
TORCH_MODULE(BatchNorm);

/// Sets the reducer of every batch norm in `model`; returns how many there are.
std::size_t set_statistics_reducer(torch::nn::Module& model,
                                   const std::shared_ptr<StatisticsReducer>& reducer);

}  // namespace millrace::train
