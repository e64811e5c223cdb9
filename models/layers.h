// Layers of the models: initialisation, the choice between native and LibTorch's ops, dropout and
// batch norm.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "millrace/image.h"

namespace millrace::train {

// Initialisation of models, and checks that several of them share.

/// Initialises as torchvision: convolutions normal with He's standard deviation over fan-out (He et
/// al., "Delving deep into rectifiers", 2015), and their biases 0. Leaves batch norms at 1 and 0,
/// and linear layers as they are.
void init_convolutions(torch::nn::Module& model);
/// Initialises linear layers as torchvision's VGG: normal with this standard deviation, biases 0.
void init_linear_layers(torch::nn::Module& model, double deviation);

/// Replaces the weights of convolutions and linear layers, and sets their biases to 0. kaiming:
/// He's normal over fan-in; xavier: Glorot and Bengio's uniform (2010); default: changes nothing.
/// Throws UsageError for another name.
void initialise(torch::nn::Module& model, std::string_view init);

/// Throws UsageError, with the model's name, for images with a side of less than `least` pixels.
void require_side(std::string_view model, Size input, int least);

// Convolutions and poolings for models: LibTorch's or the native ones (models/native/ops.h).

/// Takes LibTorch's layers for their parameters, so that names and initial weights are the same.
class Ops {
 public:
  explicit Ops(bool native) : native_(native) {}

  torch::Tensor conv2d(const torch::Tensor& images, torch::nn::Conv2d& layer) const;
  /// Pools non-overlapping windows of side `kernel`.
  torch::Tensor max_pool2d(const torch::Tensor& images, std::int64_t kernel) const;
  /// Computes relu(conv2d(images)).
  torch::Tensor conv_relu(const torch::Tensor& images, torch::nn::Conv2d& layer) const;
  /// Computes max_pool2d(relu(conv2d(images)), 2); fused by the native op where it can.
  torch::Tensor conv_relu_pool(const torch::Tensor& images, torch::nn::Conv2d& layer) const;

 private:
  bool native_;
};

// Dropout that draws from a generator of its model, not of the process: concurrent replicas would
// draw from a shared one in any order.

/// Computes as torch::nn::Dropout: in training, sets each value to 0 with probability p, and
/// divides it by 1 - p otherwise.
class DropoutImpl : public torch::nn::Module {
 public:
  explicit DropoutImpl(double p) : p_(p), generator_(at::detail::createCPUGenerator()) {}
  torch::Tensor forward(const torch::Tensor& input);
  /// Seeds the next draws on the CPU. On other devices torch's own generator decides.
  void seed(std::uint64_t seed) { generator_.set_current_seed(seed); }

 private:
  double p_;
  at::Generator generator_;
};
TORCH_MODULE(Dropout);

/// Seeds every dropout of a model differently.
void seed_dropout(torch::nn::Module& model, std::uint64_t seed);

// Batch normalisation that can take its statistics over several replicas or ranks (SyncBatchNorm),
// on any device.
//
// Ioffe, Szegedy, "Batch normalization" (2015). LibTorch offers the synchronised form for CUDA
// alone, in pieces, which are used there; elsewhere it consists of ordinary tensor operations.

/// Sums over all replicas or ranks.
class StatisticsReducer {
 public:
  virtual ~StatisticsReducer() = default;
  /// Replaces `sums`, contiguous floating-point values on the input's device, by their sums over
  /// all participants. Each of them calls this equally often and in the same order, from the thread
  /// of its forward or backward pass.
  virtual void all_reduce(torch::Tensor& sums) = 0;
  /// Return the number of this participant, from 0, and that of all.
  virtual int rank() const = 0;
  virtual int world() const = 0;
};

/// Without a reducer, has the parameters, buffers, defaults (eps 1e-5, momentum 0.1) and arithmetic
/// of torch::nn::BatchNorm2d.
///
/// With a reducer, training normalises by the mean and variance of all participants' samples:
/// forward reduces (Σx, Σx², n), on CUDA the participants' own means, deviations and n; backward
/// (Σdy, Σdy·x̂). A participant without samples passes N x C
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
  /// Leaves num_batches_tracked to the caller.
  void stop_counting() { counts_ = false; }
  /// nullptr: normalises by its own samples only.
  void set_reducer(std::shared_ptr<StatisticsReducer> reducer) { reducer_ = std::move(reducer); }

  torch::Tensor weight, bias;               ///< scale and shift, per channel
  torch::Tensor running_mean, running_var;  ///< per channel; used in evaluation
  torch::Tensor num_batches_tracked;        ///< scalar, int64

 private:
  torch::Tensor forward_reduced(const torch::Tensor& input);
  torch::Tensor forward_reduced_on_cuda(const torch::Tensor& input);

  std::shared_ptr<StatisticsReducer> reducer_;
  bool counts_ = true;
};
TORCH_MODULE(BatchNorm);

/// Sets the reducer of every batch norm in `model`, and returns their number.
std::size_t set_statistics_reducer(torch::nn::Module& model,
                                   const std::shared_ptr<StatisticsReducer>& reducer);

}  // namespace millrace::train
