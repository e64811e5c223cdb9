// Packs gradients into buckets and sums them.
#include "strategies/torch/gradient_sum.h"

#include <utility>

namespace millrace::train {
namespace {

/// Returns a dense tensor's elements in memory order, whatever its strides.
torch::Tensor in_memory(const torch::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1});
}

std::int64_t bytes_of(const torch::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

}  // namespace

void sum_gradients(const std::vector<std::vector<torch::Tensor>>& gradients, DeviceSum& sum,
                   std::int64_t bytes) {
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor>& sizes = gradients.front();
  for (std::size_t begin = 0; begin < sizes.size();) {
    std::size_t end = begin + 1;
    std::int64_t taken = bytes_of(sizes[begin]);
    while (end < sizes.size() && taken + bytes_of(sizes[end]) <= bytes)
      taken += bytes_of(sizes[end++]);

    std::vector<torch::Tensor> vectors, firsts;
    for (const std::vector<torch::Tensor>& own : gradients) {
      std::vector<torch::Tensor> parts;
      for (std::size_t i = begin; i < end; ++i) parts.push_back(in_memory(own[i]));
      vectors.push_back(parts.size() == 1 ? parts[0] : torch::cat(parts));
      if (firsts.empty()) firsts = std::move(parts);
    }
    sum.sum(vectors);
    begin = end;
    if (firsts.size() == 1) continue;  // summed in place
    std::vector<std::int64_t> lengths;
    for (const torch::Tensor& part : firsts) lengths.push_back(part.numel());
    at::_foreach_copy_(firsts, vectors.front().split_with_sizes(lengths));
  }
}

}  // namespace millrace::train
