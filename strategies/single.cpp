// One device's steps: zero-copy in, forward, backward, fused SGD.
#include "strategies/single.h"

#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "models/memory_format.h"
#include "models/registry.h"
#include "models/weights.h"
#include "pipeline/error.h"

namespace millrace {
namespace {

constexpr std::string_view kCuda = "cuda";

/// "cpu", "cuda" or "cuda:N" as the index of a CUDA device; -1 for the CPU.
int device_index(const std::string& device) {
  if (device == "cpu") return -1;
  if (device == kCuda) return 0;
  int index = -1;
  const char* const begin = device.data() + std::min(device.size(), kCuda.size() + 1);
  const char* const end = device.data() + device.size();
  const auto [stop, error] = std::from_chars(begin, end, index);
  if (!device.starts_with("cuda:") || error != std::errc() || stop != end || index < 0 ||
      index > std::numeric_limits<c10::DeviceIndex>::max())
    throw UsageError("train.device=" + device + ": there is no such device",
                     "use cpu, cuda, cuda:N or simulated");
  return index;
}

std::optional<CudaLibrary> load_cuda(const std::string& device) {
  const int index = device_index(device);
  if (index < 0) return {};
  return CudaLibrary::load(device, index);
}

torch::Device torch_device(const std::string& device) {
  const int index = device_index(device);
  if (index < 0) return torch::kCPU;
  return torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
}

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

/// Every step allocates the tensors that the step before has freed. Where the allocator hands them
/// back to the kernel in between, LeNet's step takes some 900 page faults; kept, they cost a few
/// megabytes. For the whole process.
void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

/// Adds one batch's answers. Everything is summed from host copies in double.
void add(Evaluation& sum, const torch::Tensor& device_logits, const torch::Tensor& labels) {
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
    ++sum.confusion[row][static_cast<std::size_t>(predicted[i][0])];
    for (std::int64_t k = 0; k < best.size(1); ++k) sum.top5 += predicted[i][k] == label[i];
  }
  sum.loss_sum += losses.item<double>();
  sum.images += static_cast<std::uint64_t>(logits.size(0));
}

/// A view of the batch's labels; the batch must outlive it.
torch::Tensor labels_of(const Batch& batch) {
  // Torch has no view of constant memory; nothing writes through this one.
  return torch::from_blob(const_cast<std::int64_t*>(batch.labels()), {batch.count()}, torch::kLong);
}

/// What the loss is taken against: labels, or the probabilities that ops have made of them.
torch::Tensor targets_of(const Batch& batch) {
  if (batch.classes() == 0) return labels_of(batch);
  return torch::from_blob(const_cast<float*>(batch.probabilities()),
                          {batch.count(), batch.classes()}, torch::kFloat);
}

}  // namespace

Single::Single(const StrategyOptions& options)
    : options_(options), cuda_(load_cuda(options.device)), device_(torch_device(options.device)) {
  if (options_.dtype != DType::f32)
    throw UsageError("model.name=" + options_.model + " takes f32, the batches are " +
                         std::string(name_of(options_.dtype)),
                     "set output.dtype=f32");
  if (options_.optimizer != "sgd")
    throw UsageError("train.optimizer=" + options_.optimizer + ": there is no such optimizer",
                     "use sgd");
  if (device_.is_cpu()) keep_freed_memory();
  torch::set_num_threads(options_.threads);
  torch::manual_seed(options_.seed);
  model_ = make_model(options_.model,
                      {options_.channels, options_.input, options_.classes, options_.native_ops});
  if (!options_.weights.empty()) load_weights(*model_, options_.weights);
  model_->to(device_);
  if (device_.is_cpu() && !options_.native_ops) prefer_channels_last(*model_);
  model_->train();
  optimizer_.emplace(model_->parameters(), SgdOptions{.lr = options_.lr,
                                                      .momentum = options_.momentum,
                                                      .weight_decay = options_.weight_decay,
                                                      .nesterov = options_.nesterov});
  host_loss_ = torch::empty({}, torch::TensorOptions().pinned_memory(device_.is_cuda()));
}

torch::Tensor Single::images_of(const Batch& batch) const {
  const std::int64_t count = batch.count();
  const std::int64_t channels = options_.channels;
  const std::int64_t height = options_.input.height;
  const std::int64_t width = options_.input.width;
  const std::int64_t wanted = channels * height * width * std::int64_t{sizeof(float)};
  if (static_cast<std::int64_t>(batch.bytes()) != count * wanted)
    throw UsageError("model.name=" + options_.model + " was built for " + std::to_string(channels) +
                         "x" + std::to_string(height) + "x" + std::to_string(width) +
                         " f32 samples of " + std::to_string(wanted) + " bytes, the batch has " +
                         std::to_string(batch.bytes()) + " bytes for " + std::to_string(count) +
                         " samples",
                     "training and evaluation must end in the same size");
  // Torch has no view of constant memory; nothing writes through this one.
  auto* pixels = const_cast<std::byte*>(batch.data());
  const torch::Tensor planes =
      torch::from_blob(pixels, {count, channels, height, width}, torch::kFloat32);
  return options_.native_ops ? planes : as_pixels(planes);
}

torch::Tensor Single::to_device(const torch::Tensor& host) const {
  return device_.is_cpu() ? host : host.to(device_);
}

void Single::step(Batch batch, SpanClock& spans) {
  in_our_words("training step", [&] {
    spans.enter(Span::h2d);
    const torch::Tensor images = to_device(images_of(batch));
    const torch::Tensor targets = to_device(targets_of(batch));
    const std::int64_t count = batch.count();
    if (!device_.is_cpu()) batch.release();

    spans.enter(Span::forward);
    const torch::Tensor loss = at::cross_entropy_loss(model_->forward(images), targets);

    spans.enter(Span::backward);
    loss.backward();
    batch.release();  // the first layer's gradient was the last to read the pixels

    spans.enter(Span::step);
    optimizer_->step();
    host_loss_.copy_(loss.detach(), /*non_blocking=*/true);
    if (!device_.is_cpu()) {
      spans.enter(Span::device_wait);
      torch::cuda::synchronize(device_.index());
    }
    last_loss_ = host_loss_.item<float>();
    loss_sum_ += *last_loss_ * static_cast<double>(count);
    loss_samples_ += count;
  });
}

double Single::take_train_loss() {
  if (loss_samples_ == 0) return std::numeric_limits<double>::quiet_NaN();
  const double mean = loss_sum_ / static_cast<double>(std::exchange(loss_samples_, 0));
  loss_sum_ = 0;
  return mean;
}

std::optional<Evaluation> Single::evaluate(Loader& loader) {
  Evaluation sum;
  const auto classes = static_cast<std::size_t>(options_.classes);
  sum.confusion.assign(classes, std::vector<std::uint64_t>(classes));
  in_our_words("evaluation", [&] {
    const torch::NoGradGuard no_grad;
    model_->eval();
    while (const Batch batch = loader.next())
      add(sum, model_->forward(to_device(images_of(batch))), labels_of(batch));
  });
  model_->train();
  return sum;
}

void Single::save(const std::filesystem::path& file) { save_weights(*model_, file); }

std::string Single::parameters_hash() { return hash_weights(*model_); }

std::uint64_t Single::parameter_count() const {
  std::uint64_t count = 0;
  for (const torch::Tensor& parameter : model_->parameters())
    if (parameter.requires_grad()) count += static_cast<std::uint64_t>(parameter.numel());
  return count;
}

std::uint64_t Single::peak_device_bytes() { return cuda_ ? cuda_->peak_bytes() : 0; }

std::string Single::device() const {
  if (cuda_) return cuda_->device_name();
  return "cpu (" + std::to_string(options_.threads) +
         (options_.threads == 1 ? " thread)" : " threads)");
}

}  // namespace millrace

millrace::Strategy* millrace_make_single(const millrace::StrategyOptions* options) {
  return new millrace::Single(*options);
}

const char* millrace_torch_version() { return TORCH_VERSION; }
