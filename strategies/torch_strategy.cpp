#include "strategies/torch_strategy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "models/dropout.h"
#include "models/registry.h"
#include "models/weights.h"
#include "pipeline/error.h"
#include "strategies/batch_tensors.h"
#include "strategies/device.h"
#include "strategies/evaluation.h"

namespace millrace {
namespace {

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kAverages = "ema.safetensors";
constexpr const char* kState = "training.safetensors";

/// Torch's errors carry a stack trace; a user wants the one line that says what went wrong.
template <class Work>
auto in_our_words(const char* doing, const Work& work) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError&) {
    throw RunError(std::string("out of device memory in the ") + doing,
                   "make loader.batch smaller");
  } catch (const c10::Error& error) {
    std::string what = error.what_without_backtrace();
    throw RunError(std::string("LibTorch failed in the ") + doing + ": " +
                   what.substr(0, what.find('\n')));
  }
}

/// A seed for one step on one rank, so that a resumed run draws as the first one did (splitmix64's
/// finaliser over the three).
std::uint64_t step_seed(std::uint64_t seed, std::uint64_t step, int rank) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15u * (step + 1) +
                    0xd1b54a32d192ed03u * static_cast<std::uint64_t>(rank + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

NamedTensors trainable(const torch::nn::Module& model) {
  NamedTensors named;
  for (const auto& parameter : model.named_parameters())
    if (parameter.value().requires_grad()) named.emplace_back(parameter.key(), parameter.value());
  return named;
}

/// Scales gradients so that all of them together are no longer than `limit`
/// (torch.nn.utils.clip_grad_norm_, norm 2).
void clip(const std::vector<torch::Tensor>& gradients, double limit) {
  const torch::Tensor norm = torch::stack(at::_foreach_norm(gradients, 2)).norm();
  const torch::Tensor factor = (limit / (norm + 1e-6)).clamp_max(1);
  at::_foreach_mul_(gradients, factor);
}

void check(const StrategyOptions& options) {
  if (options.dtype != DType::f32)
    throw UsageError("model.name=" + options.model + " takes f32, the batches are " +
                         std::string(name_of(options.dtype)),
                     "set output.dtype=f32");
}

}  // namespace

TorchStrategy::TorchStrategy(const StrategyOptions& options)
    : options_((check(options), options)),
      cuda_(load_cuda(options.device)),
      device_(millrace::torch_device(options.device)),
      model_([&] {
        if (device_.is_cpu()) keep_freed_memory();
        torch::set_num_threads(options_.threads);
        torch::manual_seed(options_.seed);
        auto model = make_replica();
        if (!options_.weights.empty()) load_weights(*model, options_.weights);
        return model;
      }()),
      parameters_(model_->parameters()),
      optimizer_(make_optimizer(options_, trainable(*model_))),
      scaler_(options_.amp == "f16", device_),
      ema_(*model_, options_.ema),
      host_loss_(torch::empty({}, torch::TensorOptions().pinned_memory(device_.is_cuda()))),
      train_loss_(torch::zeros({2}, torch::kDouble)) {}

std::shared_ptr<Classifier> TorchStrategy::make_replica() const {
  auto model = make_model(options_.model, {options_.channels, options_.input, options_.classes},
                          options_.model_options);
  model->to(device_);
  if (device_.is_cpu() && !options_.model_options.native_ops) prefer_channels_last(*model);
  model->train();
  return model;
}

torch::Tensor TorchStrategy::to_device(const torch::Tensor& host) const {
  return device_.is_cpu() ? host : host.to(device_);
}

TorchStrategy::Loss TorchStrategy::learn(Classifier& model, const torch::Tensor& images,
                                         const torch::Tensor& targets, const StepPlace& place,
                                         int replica, SpanClock* spans) const {
  if (model.is_training()) seed_dropout(model, step_seed(options_.seed, place.step, replica));
  if (spans != nullptr) spans->enter(Span::forward);
  const std::int64_t samples = images.size(0);
  const bool mean = samples == place.window_samples;
  torch::Tensor loss;
  {
    const Autocast autocast(options_.amp, device_);
    const torch::Tensor logits = model.forward(images).to(torch::kFloat32);
    constexpr std::int64_t kIgnoreIndex = -100;
    loss = samples == 0 ? logits.sum()
                        : at::cross_entropy_loss(logits, targets, /*weight=*/{},
                                                 mean ? at::Reduction::Mean : at::Reduction::Sum,
                                                 kIgnoreIndex, options_.label_smoothing);
  }
  if (spans != nullptr) spans->enter(Span::backward);
  const torch::Tensor weighted =
      mean ? loss : loss * (1 / static_cast<double>(place.window_samples));
  scaler_.scaled(weighted).backward();
  return {loss.detach(), mean ? static_cast<double>(samples) : 1, samples};
}

void TorchStrategy::step(Batch batch, const StepPlace& place, SpanClock& spans) {
  in_our_words("training step", [&] {
    const std::uint64_t seed = step_seed(options_.seed, place.step, rank());
    at::Generator(at::globalContext().defaultGenerator(device_)).set_current_seed(seed);

    const Loss loss = gradients(batch, place, spans);
    batch.release();
    Totals totals{.samples = static_cast<double>(loss.samples),
                  .asked_to_stop = place.stop ? 1.0 : 0.0};
    if (device_.is_cpu() && loss.value.defined())
      totals.loss = loss.value.item<double>() * loss.divisor;
    add_up(totals, spans);
    if (place.opens) window_seen_ = 0;
    window_seen_ += totals.samples;
    if (device_.is_cpu()) read_loss(place, totals);  // before it can do harm

    if (place.updates) {
      spans.enter(Span::step);
      update(place);
    }
    if (device_.is_cpu()) return;
    if (loss.value.defined()) host_loss_.copy_(loss.value, /*non_blocking=*/true);
    spans.enter(Span::device_wait);
    torch::cuda::synchronize(device_.index());
    totals.loss = loss.value.defined() ? host_loss_.item<float>() * loss.divisor : 0;
    read_loss(place, totals);
  });
}

void TorchStrategy::read_loss(const StepPlace& place, const Totals& totals) {
  last_samples_ = static_cast<std::int64_t>(totals.samples);
  last_loss_.reset();
  if (totals.samples == 0) return;
  last_loss_ = totals.loss / totals.samples;
  if (!std::isfinite(*last_loss_))
    throw RunError("the loss is " + std::string(std::isnan(*last_loss_) ? "NaN" : "infinite") +
                       " at step " + std::to_string(place.step + 1),
                   "lower train.lr, or set train.clip or train.warmup; the last checkpoint is from "
                   "before");
  double* const sums = train_loss_.mutable_data_ptr<double>();  // indexing takes microseconds
  sums[0] += totals.loss;
  sums[1] += totals.samples;
}

void TorchStrategy::update(const StepPlace& place) {
  const torch::NoGradGuard no_grad;
  const auto wanted = static_cast<double>(place.window_samples);
  if (window_seen_ > 0) {  // else every sample of the window has failed
    std::vector<torch::Tensor> gradients;
    for (const torch::Tensor& parameter : parameters_)
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    const torch::Tensor found_inf = scaler_.unscale(gradients);
    if (window_seen_ != wanted) at::_foreach_mul_(gradients, wanted / window_seen_);
    if (options_.clip > 0) clip(gradients, options_.clip);
    optimizer_->step(place.lr, found_inf);
    scaler_.update(found_inf);
    if (ema_) ema_.update();
  }
  clear_gradients();
}

void TorchStrategy::clear_gradients() {
  // Dropped, so that the next backward writes instead of adds.
  for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

double TorchStrategy::take_train_loss() {
  const double samples = train_loss_[1].item<double>();
  if (samples == 0) return std::numeric_limits<double>::quiet_NaN();
  const double mean = train_loss_[0].item<double>() / samples;
  train_loss_.zero_();
  return mean;
}

std::optional<Evaluation> TorchStrategy::evaluate(Loader& loader) {
  Evaluation sum = empty_evaluation(options_.classes);
  in_our_words("evaluation", [&] {
    const torch::NoGradGuard no_grad;
    share_buffers();
    std::optional<EmaInPlace> averages;
    if (ema_) averages.emplace(ema_);
    model_->eval();
    while (const Batch batch = loader.next()) {
      alive();
      if (batch.count() == 0) continue;
      const Slice all = whole(batch);
      const Autocast autocast(options_.amp, device_);
      add(sum, model_->forward(to_device(images_of(batch, all, options_))), labels_of(batch, all));
    }
    model_->train();
    torch::Tensor sums = to_tensor(sum);
    add_up(sums);
    sum = from_tensor(sums, options_.classes);
  });
  return sum;
}

NamedTensors TorchStrategy::training_state() {
  NamedTensors all = optimizer_->state();
  for (auto& named : scaler_.state()) all.push_back(std::move(named));
  for (auto& named : ema_.count()) all.push_back(std::move(named));
  all.emplace_back("train_loss", train_loss_);
  return all;
}

void TorchStrategy::save(const std::filesystem::path& folder) {
  share_buffers();
  // What other ranks have recorded up to here is on disk before the checkpoint counts.
  torch::Tensor arrivals = torch::zeros({1});
  add_up(arrivals);
  if (rank() != 0) return;
  save_weights(*model_, folder / kWeights);
  save_tensors(training_state(), folder / kState);
  if (ema_) save_tensors(ema_.state(), folder / kAverages);
}

void TorchStrategy::restore(const std::filesystem::path& folder) {
  const char* const hint = "resume with the keys that the run was started with";
  load_weights(*model_, folder / kWeights);
  load_tensors(training_state(), folder / kState, "the run", hint);
  if (ema_) load_tensors(ema_.state(), folder / kAverages, "the run", hint);
}

std::string TorchStrategy::parameters_hash() {
  share_buffers();
  return hash_weights(*model_);
}

std::uint64_t TorchStrategy::parameter_count() const {
  std::uint64_t count = 0;
  for (const torch::Tensor& parameter : parameters_)
    if (parameter.requires_grad()) count += static_cast<std::uint64_t>(parameter.numel());
  return count;
}

std::uint64_t TorchStrategy::peak_device_bytes() { return cuda_ ? cuda_->peak_bytes() : 0; }

std::string TorchStrategy::device() const {
  if (cuda_) return cuda_->device_name();
  return "cpu (" + std::to_string(options_.threads) +
         (options_.threads == 1 ? " thread)" : " threads)");
}

}  // namespace millrace
