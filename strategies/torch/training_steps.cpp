// Forward pass, backward pass and update, and how losses are read back.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "millrace/error.h"
#include "models/layers.h"
#include "strategies/torch/device.h"
#include "strategies/torch/torch_errors.h"
#include "strategies/torch/torch_strategy.h"
#include "strategies/trainer/train_choices.h"

namespace millrace::train {
namespace {

/// Returns a seed per step and rank, so that a resumed run draws the same numbers (splitmix64's
/// finaliser over the three).
std::uint64_t step_seed(std::uint64_t seed, std::uint64_t step, int rank) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15u * (step + 1) +
                    0xd1b54a32d192ed03u * static_cast<std::uint64_t>(rank + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Scales gradients so that their joint norm is at most `limit` (torch.nn.utils.clip_grad_norm_,
/// norm 2).
void clip(const std::vector<torch::Tensor>& gradients, double limit) {
  const torch::Tensor norm = torch::stack(at::_foreach_norm(gradients, 2)).norm();
  const torch::Tensor factor = (limit / (norm + 1e-6)).clamp_max(1);
  at::_foreach_mul_(gradients, factor);
}

}  // namespace

TorchStrategy::Loss TorchStrategy::learn(Classifier& model, const torch::Tensor& images,
                                         const torch::Tensor& targets, const StepContext& place,
                                         int replica, CorrectCounter* counter,
                                         measure::SpanClock* spans) const {
  seed_draws(model, images.device(), place, replica);
  return loss_of(pass(model, images, targets, place.window_samples, counter, spans), images.size(0),
                 place);
}

void TorchStrategy::seed_draws(Classifier& model, torch::Device device, const StepContext& place,
                               int replica) const {
  const std::uint64_t seed = step_seed(seed_, place.step, replica);
  if (model.is_training()) seed_dropout(model, seed);
  if (!device.is_cpu())  // each replica's device has its own generator
    at::Generator(at::globalContext().defaultGenerator(device)).set_current_seed(seed);
}

TorchStrategy::Loss TorchStrategy::loss_of(const torch::Tensor& value, std::int64_t samples,
                                           const StepContext& place) {
  const bool mean = samples == place.window_samples;
  return {value, mean ? static_cast<double>(samples) : 1, samples};
}

torch::Tensor TorchStrategy::pass(Classifier& model, const torch::Tensor& images,
                                  const torch::Tensor& targets, std::int64_t window_samples,
                                  CorrectCounter* counter, measure::SpanClock* spans) const {
  const c10::DeviceGuard guard(images.device());
  if (spans != nullptr) spans->enter(measure::Span::forward);
  const std::int64_t samples = images.size(0);
  const bool mean = samples == window_samples;
  torch::Tensor loss;
  {
    const Autocast autocast(amp_, device_);
    const torch::Tensor logits = model.forward(images).to(torch::kFloat32);
    model.count_batch();
    constexpr std::int64_t kIgnoreIndex = -100;
    loss = samples == 0 ? logits.sum()
                        : at::cross_entropy_loss(logits, targets, /*weight=*/{},
                                                 mean ? at::Reduction::Mean : at::Reduction::Sum,
                                                 kIgnoreIndex, label_smoothing_);
    if (counter != nullptr) counter->add(logits, targets);
  }
  if (spans != nullptr) {
    spans->enter(measure::Span::backward);
    if (marks_ != nullptr && device_parts_) marks_->place(*streams_, StepMarks::Point::backward);
  }
  loss.backward(scaler_.root_gradient(loss, mean ? 1 : 1 / static_cast<double>(window_samples)));
  return loss.detach();
}

/// A step queued on the device. Its loss arrives by an asynchronous copy.
class TorchStrategy::DeviceStep final : public QueuedStep {
 public:
  DeviceStep(TorchStrategy& strategy, std::uint64_t step, const Loss& loss, const Totals& totals)
      : strategy_(strategy),
        step_(step),
        divisor_(loss.divisor),
        totals_(totals),
        marks_(*strategy.marks_) {
    DeviceStreams& streams = *strategy.streams_;
    if (loss.value.defined()) {
      loss_ = streams.host_number();
      loss_.copy_(loss.value, /*non_blocking=*/true);
    }
    // A step without samples has not begun.
    if (!marks_.placed(StepMarks::Point::begin)) marks_.place(streams, StepMarks::Point::begin);
    marks_.place(streams, StepMarks::Point::end);
  }
  bool done() override { return marks_.reached(); }
  FinishedStep finish() override {
    marks_.wait();
    FinishedStep finished = marks_.read(*strategy_.streams_, step_);
    if (loss_.defined()) totals_.loss = loss_.item<float>() * divisor_;
    finished.loss = strategy_.read_loss(step_, totals_);
    return finished;
  }

 private:
  TorchStrategy& strategy_;
  std::uint64_t step_;
  torch::Tensor loss_;  ///< in host memory
  double divisor_;
  Totals totals_;
  StepMarks& marks_;
};

void TorchStrategy::step(Batch batch, const StepContext& place, measure::SpanClock& spans) {
  const std::int64_t samples = batch.count();
  bool fits = true;
  shorten_torch_errors("training step", [&] {
    try {
      step_in(std::move(batch), place, spans);
    } catch (const c10::OutOfMemoryError&) {
      fits = false;  // frees the step's memory before others are tried
    }
  });
  if (!fits)
    throw RunError(
        "out of device memory in a training step of " + std::to_string(samples) + " samples",
        memory_hint(samples));
}

void TorchStrategy::step_in(Batch batch, const StepContext& place, measure::SpanClock& spans) {
  if (streams_) {
    queue_.make_room(spans);
    marks_ = &ring_.next();
  }
  const std::int64_t samples = batch.count();
  set_up_ = measure::SetUp::none;
  if (samples > 0) {
    const bool first = kinds_.empty();
    if (kinds_.insert({samples, batch.classes(), place.opens, place.updates}).second)
      set_up_ = first ? measure::SetUp::first : measure::SetUp::shape;
  }
  const std::uint64_t seed = step_seed(seed_, place.step, rank());
  at::Generator(at::globalContext().defaultGenerator(device_)).set_current_seed(seed);

  const bool labelled = batch.classes() == 0;  // otherwise an op mixed the labels
  const Loss loss = gradients(batch, place, spans);
  if (marks_ != nullptr && device_parts_ && loss.value.defined()) {
    if (loss.updated)
      marks_->set_whole_graph();
    else
      marks_->place(*streams_, StepMarks::Point::step);
  }
  batch.release();
  if (labelled) counted_ += loss.samples;
  Totals totals{.samples = static_cast<double>(loss.samples),
                .asked_to_stop = place.stop ? 1.0 : 0.0};
  if (!streams_ && loss.value.defined()) totals.loss = loss.value.item<double>() * loss.divisor;
  add_up(totals, spans);
  last_samples_ = static_cast<std::int64_t>(totals.samples);
  if (place.opens) window_seen_ = 0;
  window_seen_ += totals.samples;
  if (!streams_)  // before the optimizer uses it
    finished_.push_back({.step = place.step, .loss = read_loss(place.step, totals)});

  if (loss.updated) {
    if (ema_) ema_.count_update();
  } else if (place.updates) {
    spans.enter(measure::Span::step);
    update(place);
  }
  if (streams_) queue_.push(std::make_unique<DeviceStep>(*this, place.step, loss, totals), spans);
}

std::vector<FinishedStep> TorchStrategy::take_finished() {
  if (streams_) return shorten_torch_errors("training step", [&] { return queue_.take(); });
  return std::exchange(finished_, {});
}

void TorchStrategy::drain(measure::SpanClock& spans) {
  if (!streams_) return;
  shorten_torch_errors("training step", [&] {
    queue_.drain(spans);
    held_.keep_at_most(0, spans);
    streams_->set_clock();
  });
}

std::optional<double> TorchStrategy::read_loss(std::uint64_t step, const Totals& totals) {
  if (totals.samples == 0) return std::nullopt;
  const double loss = totals.loss / totals.samples;
  if (!std::isfinite(loss))
    throw RunError("the loss is " + std::string(std::isnan(loss) ? "NaN" : "infinite") +
                       " at step " + std::to_string(step + 1),
                   "lower train.lr, or set train.clip or train.warmup; the last checkpoint is from "
                   "before");
  double* const sums = train_loss_.mutable_data_ptr<double>();  // indexing would take microseconds
  sums[0] += totals.loss;
  sums[1] += totals.samples;
  return loss;
}

void TorchStrategy::update(const StepContext& place) {
  const auto wanted = static_cast<double>(place.window_samples);
  if (window_seen_ > 0) {  // otherwise every sample of the window failed
    apply_gradients(rate_of(place), window_seen_ != wanted ? wanted / window_seen_ : 1);
    if (ema_) ema_.count_update();
  }
  clear_gradients();
}

double TorchStrategy::rate_of(const StepContext& place) const {
  // A graph reads it from the device, where the fused optimizers take f32.
  return streams_ ? static_cast<double>(static_cast<float>(place.lr)) : place.lr;
}

void TorchStrategy::apply_gradients(const LearningRate& lr, double scale) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : parameters_)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  const torch::Tensor found_inf = scaler_.unscale(gradients);
  if (scale != 1) at::_foreach_mul_(gradients, scale);
  if (clip_ > 0) clip(gradients, clip_);
  optimizer_->step(lr, found_inf);
  scaler_.update(found_inf);
  if (ema_) ema_.average();
}

void TorchStrategy::send_rate(const StepContext& place) {
  if (!rate_.defined()) rate_ = torch::zeros({}, torch::TensorOptions(device_));
  rates_.send(*streams_, place.lr, rate_);
}

torch::Tensor TorchStrategy::pass_and_update(const torch::Tensor& images,
                                             const torch::Tensor& targets,
                                             std::int64_t window_samples,
                                             measure::SpanClock* spans) {
  torch::Tensor loss = pass(*model_, images, targets, window_samples, &counter(), spans);
  if (spans != nullptr) spans->enter(measure::Span::step);
  apply_gradients(LearningRate(rate_), /*scale=*/1);
  clear_gradients();
  return loss;
}

torch::Tensor TorchStrategy::run_graphed(StepGraphs& graphs, Batch& batch, const StepContext& place,
                                         measure::SpanClock& spans, const StepGraphs::Step& step) {
  const auto send = [&](torch::Tensor& block, DeviceMark* read) {
    Samples sent = send_into(batch, block, read);
    if (graphs.has_whole_step()) send_rate(place);  // behind the mark of the step's begin
    return sent;
  };
  seed_draws(model(), device_, place, rank());  // replays draw from it as well
  torch::Tensor loss = graphs.run(send, spans, step);
  const measure::SetUp set_up = graphs.last_set_up();
  if (set_up != measure::SetUp::none && set_up_ != measure::SetUp::first) set_up_ = set_up;
  return loss;
}

void TorchStrategy::clear_gradients() {
  // Drops gradients, so that the next backward writes instead of adding.
  for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

double TorchStrategy::take_train_loss() {
  const double samples = train_loss_[1].item<double>();
  if (samples == 0) return std::numeric_limits<double>::quiet_NaN();
  const double mean = train_loss_[0].item<double>() / samples;
  train_loss_.zero_();
  return mean;
}

TrainCounts TorchStrategy::take_train_counts() {
  torch::Tensor sums = torch::zeros({2}, torch::kDouble);
  double* const sum = sums.mutable_data_ptr<double>();
  sum[0] = static_cast<double>(std::exchange(counted_, 0));
  for (CorrectCounter& counter : counters_) sum[1] += static_cast<double>(counter.take());
  add_up(sums);
  return {.samples = static_cast<std::uint64_t>(sum[0]),
          .correct = static_cast<std::uint64_t>(sum[1])};
}

std::string TorchStrategy::memory_hint(std::int64_t samples) {
  std::string smaller =
      "lower loader.batch; raise train.accumulate to keep the effective batch size";
  if (options_.graph_samples > 0)  // eager steps would not account for the graph's own memory
    return "lower loader.batch, or set train.cuda_graphs=off, which needs less";
  if (strategy_of(options_.recipe) != StrategyKind::single || device_.is_cpu()) return smaller;
  clear_gradients();
  const std::unique_ptr<DeviceMemory> memory = make_device_memory(device_);
  const auto fit = find_samples_that_fit(samples, *memory, [&](std::int64_t count) {
    const auto on = torch::TensorOptions(device_);
    const SampleSpec& sample = options_.sample;
    learn(*model_,
          torch::zeros({count, sample.channels, sample.size.height, sample.size.width}, on),
          torch::zeros({count}, on.dtype(torch::kLong)), {.window_samples = count},
          /*replica=*/0, /*counter=*/nullptr, /*spans=*/nullptr);
    clear_gradients();
  });
  if (!fit) return smaller;
  return "estimated from smaller batches, loader.batch=" +
         std::to_string(std::min(*fit, samples - 1)) +
         " would fit; raise train.accumulate to keep the effective batch size";
}

}  // namespace millrace::train
