// Dropout that draws from a generator of its model, not of the process: concurrent replicas would
// draw from a shared one in any order.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace millrace::train {

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

}  // namespace millrace::train
