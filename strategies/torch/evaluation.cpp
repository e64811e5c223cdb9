// Evaluates a model, and sums its correct answers, losses and confusions.
#include "strategies/torch/evaluation.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "strategies/torch/device.h"
#include "strategies/torch/torch_errors.h"
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

torch::Tensor TorchStrategy::answers(const torch::Tensor& images) {
  const Autocast autocast(amp_, device_);
  return model_->forward(normalization_(images));
}

void TorchStrategy::evaluate_behind(Loader& loader, Evaluation& sum) {
  struct Answers {
    torch::Tensor logits, labels;  ///< in host memory
    OwnedMark there;
  };
  constexpr std::size_t kBehind = 4;  // a host that adds up must not let the device run dry
  std::deque<Answers> queued;
  InFlightBatches held;
  const auto add_oldest = [&] {
    const Answers oldest = std::move(queued.front());
    queued.pop_front();
    oldest.there->wait();
    add(sum, oldest.logits, oldest.labels, on_prediction_);
  };
  for (;;) {
    held.keep_at_most(loader.slots() - 1);
    Batch batch = loader.next();
    if (!batch) break;
    alive();
    if (batch.count() == 0) continue;
    const pipeline::Slice all = whole(batch);
    const torch::Tensor pixels = streams_->copy(images_of(batch, all, form_));
    std::vector<OwnedMark> copied;
    copied.push_back(streams_->join());
    torch::Tensor labels = labels_of(batch, all).clone();
    held.hold(std::move(batch), std::move(copied));
    torch::Tensor logits = streams_->to_host(answers(pixels));
    queued.push_back({std::move(logits), std::move(labels), streams_->fence()});
    if (queued.size() > kBehind) add_oldest();
  }
  while (!queued.empty()) add_oldest();
  held.keep_at_most(0);
}

std::optional<Evaluation> TorchStrategy::evaluate(Loader& loader) {
  Evaluation sum = empty_evaluation(options_.classes);
  shorten_torch_errors("evaluation", [&] {
    const torch::NoGradGuard no_grad;
    share_buffers();
    std::optional<EmaInPlace> averages;
    if (ema_) averages.emplace(ema_);
    model_->eval();
    if (streams_)
      evaluate_behind(loader, sum);
    else
      while (const Batch batch = loader.next()) {
        alive();
        if (batch.count() == 0) continue;
        const pipeline::Slice all = whole(batch);
        add(sum, answers(images_of(batch, all, form_)), labels_of(batch, all), on_prediction_);
      }
    model_->train();
    sum.failed = loader.stats().failed;
    torch::Tensor sums = to_tensor(sum);
    add_up(sums);
    sum = from_tensor(sums, options_.classes);
  });
  return sum;
}

}  // namespace millrace::train
