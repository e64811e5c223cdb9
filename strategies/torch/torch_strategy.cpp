// Makes the model and all around it, and sends batches to it.
#include "strategies/torch/torch_strategy.h"

#include <algorithm>
#include <utility>

#include "augment/plan/choices.h"
#include "millrace/error.h"
#include "models/descriptions.h"
#include "models/registry.h"
#include "models/weights.h"
#include "strategies/torch/device.h"
#include "strategies/trainer/train_choices.h"

namespace millrace::train {
namespace {

NamedTensors trainable(const torch::nn::Module& model) {
  NamedTensors named;
  for (const auto& parameter : model.named_parameters())
    if (parameter.value().requires_grad()) named.emplace_back(parameter.key(), parameter.value());
  return named;
}

/// Throws UsageError if a model whose samples have several sizes takes one only.
void check_sizes(const Recipe& recipe) {
  if (recipe.numbers("output.sizes").size() < 2) return;
  const std::string& name = recipe.text("model.name");
  if (const ModelDescription* model = describe_model(name);
      model != nullptr && model->takes_one_size())
    throw UsageError(
        "output.sizes with model.name=" + name + ": its first linear layer takes one size",
        "choose a model that ends in global pooling, such as resnet18, or leave output.sizes out");
  if (recipe.text("train.cuda_graphs") != "off")
    throw UsageError("output.sizes with train.cuda_graphs=" + recipe.text("train.cuda_graphs") +
                         ": a graph has one size",
                     "set train.cuda_graphs=off");
}

/// Returns the smallest size that the model is given.
Size least_size(const StrategyOptions& options) {
  Size least = options.sample.size;
  const auto add = [&least](Size size) {
    least = {std::min(least.width, size.width), std::min(least.height, size.height)};
  };
  for (const double side : options.recipe.numbers("output.sizes"))
    add({static_cast<int>(side), static_cast<int>(side)});
  if (options.eval_size) add(*options.eval_size);
  return least;
}

/// Returns whether the model is given samples of several sizes.
bool has_sizes(const StrategyOptions& options) {
  return options.recipe.numbers("output.sizes").size() > 1 ||
         options.eval_size.value_or(options.sample.size) != options.sample.size;
}

/// Returns the options. Throws UsageError if they contradict each other.
const StrategyOptions& checked(const StrategyOptions& options) {
  const Recipe& recipe = options.recipe;
  const SampleSpec& sample = options.sample;
  const bool normalize = augment::normalize_of(recipe) == augment::Normalize::device;
  if (sample.dtype != (normalize ? DType::u8 : DType::f32))
    throw UsageError("model.name=" + recipe.text("model.name") + " takes f32, the batches are " +
                         std::string(name_of(sample.dtype)),
                     "set output.dtype=f32; output.normalize=device sends u8 and makes f32 of it");
  check_sizes(recipe);
  const std::string& channels_last = recipe.text("train.channels_last");
  if (channels_last == "on" && ops_of(recipe) == ModelOps::native)
    throw UsageError(
        "train.channels_last=on with model.ops=native: native ops work on planar (NCHW) tensors",
        "set train.channels_last=auto, or model.ops=torch");
  // A convolution that sees adjacent channels chooses channels_last, whatever the weights' format.
  if (channels_last == "off" && sample.layout == Layout::hwc && sample.channels > 1 && !normalize)
    throw UsageError(
        "output.layout=hwc with train.channels_last=off: convolutions would use channels_last",
        "set train.channels_last=on, leave output.layout at its default, or let the device lay "
        "images out: output.normalize=device");
  return options;
}

}  // namespace

TorchStrategy::TorchStrategy(const StrategyOptions& options, std::unique_ptr<DeviceStreams> streams)
    : options_(checked(options)),
      amp_(options.recipe.text("train.amp")),
      label_smoothing_(options.recipe.number("train.label_smoothing")),
      clip_(options.recipe.number("train.clip")),
      device_parts_(options.recipe.boolean("train.device_parts")),
      seed_(static_cast<std::uint64_t>(options.recipe.integer("seed"))),
      inflight_(inflight_of(options.recipe)),
      cuda_(load_cuda(options)),
      device_(millrace::train::torch_device(options.device)),
      form_{.model = options.recipe.text("model.name"),
            .sample = options.sample,
            .any_size = has_sizes(options)},
      model_([&] {
        const Recipe& recipe = options_.recipe;
        if (device_.is_cpu())
          keep_freed_memory();
        else
          allow_tf32(recipe.text("train.tf32"));
        if (!device_.is_cpu()) choose_algorithms_by_time(recipe.boolean("train.cudnn_benchmark"));
        if (recipe.boolean("train.deterministic") && !device_.is_cpu()) require_determinism();
        torch::set_num_threads(options_.threads);
        torch::manual_seed(seed_);
        auto model = make_replica(device_);
        const std::string& weights = recipe.text("model.weights");
        if (!weights.empty()) load_weights(*model, weights);
        return model;
      }()),
      normalization_(options_.recipe, form_, device_),
      parameters_(model_->parameters()),
      optimizer_(make_optimizer(options_.recipe, trainable(*model_))),
      scaler_(amp_ == "f16", device_),
      ema_(*model_, options_.recipe.number("train.ema")),
      train_loss_(torch::zeros({2}, torch::kDouble)),
      counters_(1, CorrectCounter(device_)),
      streams_(streams ? std::move(streams) : make_device_streams(device_)),
      ring_(inflight_),
      rates_(inflight_),
      queue_(inflight_) {
  if (streams_) streams_->set_clock();
}

std::shared_ptr<Classifier> TorchStrategy::make_replica(torch::Device device) {
  const SampleSpec& sample = options_.sample;
  auto model = make_model(form_.model, {sample.channels, least_size(options_), options_.classes},
                          model_options(options_.recipe));
  form_.channels_last = wants_channels_last(options_, device, *model);
  model->to(device);
  if (form_.channels_last) prefer_channels_last(*model);
  if (!device.is_cpu()) model->count_together();
  model->train();
  return model;
}

Samples TorchStrategy::take(Batch& batch) {
  Samples samples;
  if (streams_) {
    samples = samples_in(streams_->copy(block_of(batch)), batch, form_);
    hold_until_copied(batch);
  } else {
    const pipeline::Slice all = whole(batch);
    samples = {images_of(batch, all, form_), targets_of(batch, all)};
  }
  samples.images = normalization_(samples.images);
  return samples;
}

Samples TorchStrategy::send_into(Batch& batch, torch::Tensor& block, DeviceMark* read) {
  torch::Tensor copied;
  if (read != nullptr)
    streams_->copy_into(block, block_of(batch), *read);
  else
    copied = streams_->copy(block_of(batch));
  Samples samples = samples_in(block, batch, form_);
  hold_until_copied(batch);
  if (copied.defined()) block.copy_(copied, /*non_blocking=*/true);
  return samples;
}

void TorchStrategy::hold_until_copied(Batch& batch) {
  std::vector<OwnedMark> copied;
  copied.push_back(streams_->join());
  hold(std::move(batch), std::move(copied));
}

void TorchStrategy::hold(Batch batch, std::vector<OwnedMark> copied) {
  held_.hold(std::move(batch), std::move(copied));
  marks_->place(*streams_, StepMarks::Point::begin);
}

std::vector<torch::Tensor> TorchStrategy::device_state() {
  std::vector<torch::Tensor> all;
  for (const NamedTensors& some :
       {state_of(*model_), optimizer_->state(), scaler_.state(), ema_.state()})
    for (const auto& [name, tensor] : some) all.push_back(tensor);
  return all;
}

std::uint64_t TorchStrategy::parameter_count() const {
  std::uint64_t count = 0;
  for (const torch::Tensor& parameter : parameters_)
    if (parameter.requires_grad()) count += static_cast<std::uint64_t>(parameter.numel());
  return count;
}

std::shared_ptr<pipeline::SlotMemory> TorchStrategy::slot_memory() {
  return cuda_ ? cuda_->pinned_memory() : nullptr;
}

std::uint64_t TorchStrategy::peak_device_bytes() const { return cuda_ ? cuda_->peak_bytes() : 0; }

std::string TorchStrategy::device() const {
  if (cuda_) return cuda_->device_name();
  return "cpu (" + std::to_string(options_.threads) +
         (options_.threads == 1 ? " thread)" : " threads)");
}

}  // namespace millrace::train
