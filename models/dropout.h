// Dropout that draws from a generator of its model, not of the process: replicas that run at once
// would take from a common one in any order.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace millrace::train {

/// torch::nn::Dropout's arithmetic: in training, each value is 0 with probability p, else divided
/// by 1 - p.
class DropoutImpl : public torch::nn::Module {
 public:
  explicit DropoutImpl(double p) : p_(p), generator_(at::detail::createCPUGenerator()) {}
  torch::Tensor forward(const torch::Tensor& input);
  /// What the next draws follow from, on the CPU; on other devices torch's own generator decides.
  void seed(std::uint64_t seed) { generator_.set_current_seed(seed); }

 private:
  double p_;
  at::Generator generator_;
};
TORCH_MODULE(Dropout);

/// Seeds every dropout of a model, each differently.
void seed_dropout(torch::nn::Module& model, std::uint64_t seed);

}  // namespace millrace::train
