// Steps, loss read-back, evaluation and checkpoints common to all strategies.
#include "strategies/torch/torch_strategy.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>

#include "augment/plan/choices.h"
#include "millrace/error.h"
#include "models/layers.h"
#include "models/registry.h"
#include "models/weights.h"
#include "strategies/torch/device.h"
#include "strategies/trainer/train_choices.h"

namespace millrace::train {
namespace {

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kAverages = "ema.safetensors";
constexpr const char* kState = "training.safetensors";

/// Runs `work` and shortens torch's errors, which carry a stack trace, to the line that says what
/// went wrong.
template <class Work>
auto shorten_torch_errors(const char* doing, const Work& work) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError&) {
    throw RunError(std::string("out of device memory in the ") + doing,
                   "make loader.batch or eval.batch smaller");
  } catch (const c10::Error& error) {
    std::string what = error.what_without_backtrace();
    throw RunError(std::string("LibTorch failed in the ") + doing + ": " +
                   what.substr(0, what.find('\n')));
  }
}

/// Returns a seed per step and rank, so that a resumed run draws the same numbers (splitmix64's
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

/// Scales gradients so that their joint norm is at most `limit` (torch.nn.utils.clip_grad_norm_,
/// norm 2).
void clip(const std::vector<torch::Tensor>& gradients, double limit) {
  const torch::Tensor norm = torch::stack(at::_foreach_norm(gradients, 2)).norm();
  const torch::Tensor factor = (limit / (norm + 1e-6)).clamp_max(1);
  at::_foreach_mul_(gradients, factor);
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
      form_{options.recipe.text("model.name"), options.sample},
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
  auto model = make_model(form_.model, {sample.channels, sample.size, options_.classes},
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
  marks_->place(*streams_, StepMarks::Place::begin);
}

std::string TorchStrategy::memory_hint(std::int64_t samples) {
  std::string smaller = "make loader.batch smaller; train.accumulate keeps its effect";
  if (options_.graph_samples > 0)  // eager steps would not account for the graph's own memory
    return "make loader.batch smaller, or set train.cuda_graphs=off, which needs less";
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
  return "by what smaller batches take, loader.batch=" +
         std::to_string(std::min(*fit, samples - 1)) +
         " would fit; train.accumulate keeps a larger one's effect";
}

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
    if (marks_ != nullptr && device_parts_) marks_->place(*streams_, StepMarks::Place::backward);
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
    if (!marks_.placed(StepMarks::Place::begin)) marks_.place(streams, StepMarks::Place::begin);
    marks_.place(streams, StepMarks::Place::end);
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
      marks_->place(*streams_, StepMarks::Place::step);
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

std::vector<torch::Tensor> TorchStrategy::device_state() {
  std::vector<torch::Tensor> all;
  for (const NamedTensors& some :
       {state_of(*model_), optimizer_->state(), scaler_.state(), ema_.state()})
    for (const auto& [name, tensor] : some) all.push_back(tensor);
  return all;
}

NamedTensors TorchStrategy::training_state() {
  NamedTensors all = optimizer_->state();
  for (auto& named : scaler_.state()) all.push_back(std::move(named));
  for (auto& named : ema_.count()) all.push_back(std::move(named));
  all.emplace_back("train_loss", train_loss_);
  return all;
}

Strategy::Snapshot TorchStrategy::snapshot() {
  share_buffers();
  // Ranks that write their records meet here: none of them is at the next checkpoint, or waits in
  // the store for a text, while the first one still waits for their records of the last.
  torch::Tensor arrivals = torch::zeros({1});
  add_up(arrivals);
  if (rank() != 0) return {};
  shorten_torch_errors("copy of the state for a checkpoint", [this] {
    if (copy_ == nullptr || copy_.use_count() > 1) copy_ = std::make_shared<State>();
    copy_->weights.take(state_of(*model_));
    copy_->training.take(training_state());
    if (ema_) copy_->averages.take(ema_.state());
  });
  return [state = std::shared_ptr<const State>(copy_),
          averaged = static_cast<bool>(ema_)](const std::filesystem::path& folder) {
    state->weights.save(folder / kWeights);
    state->training.save(folder / kState);
    if (averaged) state->averages.save(folder / kAverages);
  };
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
