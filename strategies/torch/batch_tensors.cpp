// Wraps slots in tensors.
#include "strategies/torch/batch_tensors.h"

#include "millrace/error.h"

namespace millrace::train {

pipeline::Slice whole(const Batch& batch) { return {0, batch.count()}; }

// Torch has no view of constant memory; nothing writes through this one.

torch::Tensor images_of(const Batch& batch, pipeline::Slice slice, const StrategyOptions& options) {
  const std::int64_t channels = options.channels;
  const std::int64_t height = options.input.height;
  const std::int64_t width = options.input.width;
  const std::int64_t sample =
      channels * height * width * static_cast<std::int64_t>(size_of(options.dtype));
  if (static_cast<std::int64_t>(batch.bytes()) != batch.count() * sample)
    throw UsageError("model.name=" + options.model + " was built for " + std::to_string(channels) +
                         "x" + std::to_string(height) + "x" + std::to_string(width) + " " +
                         std::string(name_of(options.dtype)) + " samples of " +
                         std::to_string(sample) + " bytes, the batch has " +
                         std::to_string(batch.bytes()) + " bytes for " +
                         std::to_string(batch.count()) + " samples",
                     "training and evaluation must end in the same size");
  auto* const pixels = const_cast<std::byte*>(batch.data() + slice.first * sample);
  torch::Tensor planes =
      torch::from_blob(pixels, {slice.count, channels, height, width},
                       options.dtype == DType::u8 ? torch::kByte : torch::kFloat);
  if (channels != 1 || options.channels_last == "off") return planes;
  // A single plane is both planes and pixels. Strides that say so keep the first pooling fast; they
  // also make a convolution choose channels_last, whatever the weights' format.
  return planes.as_strided(planes.sizes(), {height * width, 1, width, 1});
}

torch::Tensor labels_of(const Batch& batch, pipeline::Slice slice) {
  return torch::from_blob(const_cast<std::int64_t*>(batch.labels() + slice.first), {slice.count},
                          torch::kLong);
}

torch::Tensor targets_of(const Batch& batch, pipeline::Slice slice) {
  if (batch.classes() == 0) return labels_of(batch, slice);
  return torch::from_blob(const_cast<float*>(batch.probabilities() + slice.first * batch.classes()),
                          {slice.count, batch.classes()}, torch::kFloat);
}

// Converts levels to normalised values on the device.
namespace {

torch::Tensor a_channel(const std::vector<double>& values, torch::Device device) {
  return torch::tensor(values, torch::kFloat).view({1, -1, 1, 1}).to(device);
}

}  // namespace

Normalization::Normalization(const StrategyOptions& options, torch::Device device) {
  if (!options.normalize) return;
  // Divisors are tensors: for plain numbers CUDA multiplies by the reciprocal, which rounds
  // differently.
  levels_ = torch::full({1}, 255.0f, torch::TensorOptions(device));
  mean_ = a_channel(options.mean, device);
  std_ = a_channel(options.std, device);
}

torch::Tensor Normalization::operator()(const torch::Tensor& images) const {
  if (!levels_.defined()) return images;
  return images.to(torch::kFloat).div_(levels_).sub_(mean_).div_(std_);
}

}  // namespace millrace::train
