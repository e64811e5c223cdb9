#include "strategies/torch/correct_counter.h"

#include "models/native/ops.h"

namespace millrace::train {

CorrectCounter::CorrectCounter(torch::Device device)
    : count_(torch::zeros({1}, torch::TensorOptions(device).dtype(torch::kLong))) {}

void CorrectCounter::add(const torch::Tensor& logits, const torch::Tensor& targets) {
  if (targets.scalar_type() == torch::kLong) native::count_correct(count_, logits, targets);
}

std::uint64_t CorrectCounter::take() {
  const auto count = static_cast<std::uint64_t>(count_.item<std::int64_t>());
  count_.zero_();
  return count;
}

}  // namespace millrace::train
