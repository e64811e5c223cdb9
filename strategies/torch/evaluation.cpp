// Sums of correct answers, losses and confusions.
#include <algorithm>
#include <utility>

#include "models/native/ops.h"
#include "strategies/torch/torch_strategy.h"

namespace millrace::train {
namespace {

/// Visits every count by class, in one order for writing and reading.
template <class Sums, class Visit>
void for_each_count(Sums& sum, const Visit& visit) {
  for (auto& count : sum.samples) visit(count);
  for (auto& count : sum.correct) visit(count);
  for (auto& row : sum.confusion)
    for (auto& count : row) visit(count);
}

}  // namespace

Evaluation empty_evaluation(int classes) {
  const auto n = static_cast<std::size_t>(classes);
  Evaluation sum;
  sum.samples.resize(n);
  sum.correct.resize(n);
  if (n <= Evaluation::kMaxConfused) sum.confusion.assign(n, std::vector<std::uint64_t>(n));
  return sum;
}

void add(Evaluation& sum, const torch::Tensor& device_logits, const torch::Tensor& labels,
         const std::function<void(const Prediction&)>& each) {
  const torch::Tensor logits = device_logits.to(torch::kCPU, torch::kDouble);
  const std::int64_t classes = logits.size(1);
  const torch::Tensor losses =
      at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Sum);
  const torch::Tensor best =
      std::get<1>(logits.topk(std::min<std::int64_t>(5, classes), /*dim=*/1)).contiguous();
  const auto predicted = best.accessor<std::int64_t, 2>();
  const auto label = labels.accessor<std::int64_t, 1>();
  for (std::int64_t i = 0; i < logits.size(0); ++i) {
    const auto row = static_cast<std::size_t>(label[i]);
    ++sum.samples[row];
    sum.correct[row] += predicted[i][0] == label[i];
    if (!sum.confusion.empty()) ++sum.confusion[row][static_cast<std::size_t>(predicted[i][0])];
    for (std::int64_t k = 0; k < best.size(1); ++k) sum.top5 += predicted[i][k] == label[i];
  }
  sum.loss_sum += losses.item<double>();
  sum.images += static_cast<std::uint64_t>(logits.size(0));
  if (!each) return;
  const torch::Tensor probabilities = logits.softmax(1);
  const auto probability = probabilities.accessor<double, 2>();
  for (std::int64_t i = 0; i < logits.size(0); ++i) {
    const std::int64_t answer = predicted[i][0];
    each({.label = label[i], .predicted = answer, .probability = probability[i][answer]});
  }
}

torch::Tensor to_tensor(const Evaluation& sum) {
  std::vector<double> values{static_cast<double>(sum.images), static_cast<double>(sum.failed),
                             sum.loss_sum, static_cast<double>(sum.top5)};
  for_each_count(sum, [&](std::uint64_t count) { values.push_back(static_cast<double>(count)); });
  return torch::tensor(values, torch::kDouble);
}

Evaluation from_tensor(const torch::Tensor& values, int classes) {
  const double* value = values.const_data_ptr<double>();
  Evaluation sum = empty_evaluation(classes);
  sum.images = static_cast<std::uint64_t>(*value++);
  sum.failed = static_cast<std::uint64_t>(*value++);
  sum.loss_sum = *value++;
  sum.top5 = static_cast<std::uint64_t>(*value++);
  for_each_count(sum, [&](std::uint64_t& count) { count = static_cast<std::uint64_t>(*value++); });
  return sum;
}

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
