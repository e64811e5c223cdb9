// Layers of the models.
#include "models/layers.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "millrace/error.h"
#include "models/native/ops.h"

namespace millrace::train {

// Initialises layer by layer, consuming torch's generator in Python's order.
namespace {

/// Calls `set(weight, bias)` for every layer of one kind, in the order of Python's modules(): equal
/// seeds then give equal weights.
template <class Layer, class Set>
void for_each(torch::nn::Module& model, const Set& set) {
  for (const auto& module : model.modules(/*include_self=*/false))
    if (auto* layer = module->as<Layer>()) set(layer->weight, layer->bias);
}

void zero(torch::Tensor& bias) {
  if (bias.defined()) torch::nn::init::zeros_(bias);
}

}  // namespace

void init_convolutions(torch::nn::Module& model) {
  for_each<torch::nn::Conv2d>(model, [](torch::Tensor& weight, torch::Tensor& bias) {
    torch::nn::init::kaiming_normal_(weight, 0, torch::kFanOut, torch::kReLU);
    zero(bias);
  });
}

void init_linear_layers(torch::nn::Module& model, double deviation) {
  for_each<torch::nn::Linear>(model, [=](torch::Tensor& weight, torch::Tensor& bias) {
    torch::nn::init::normal_(weight, 0, deviation);
    zero(bias);
  });
}

void initialise(torch::nn::Module& model, std::string_view init) {
  if (init == "default") return;
  if (init != "kaiming" && init != "xavier")
    throw UsageError("model.init=" + std::string(init) + ": unknown initialisation",
                     "use default, kaiming or xavier");
  const auto set = [&](torch::Tensor& weight, torch::Tensor& bias) {
    if (init == "kaiming")
      torch::nn::init::kaiming_normal_(weight, 0, torch::kFanIn, torch::kReLU);
    else
      torch::nn::init::xavier_uniform_(weight);
    zero(bias);
  };
  for_each<torch::nn::Conv2d>(model, set);
  for_each<torch::nn::Linear>(model, set);
}

void require_side(std::string_view model, Size input, int least) {
  if (input.width >= least && input.height >= least) return;
  const std::string side = std::to_string(least);
  throw UsageError("model.name=" + std::string(model) + " takes images of at least " + side + "x" +
                       side + " pixels, these are " + std::to_string(input.width) + "x" +
                       std::to_string(input.height),
                   "enlarge them with a resize in [[augment]] and [[eval.augment]]");
}

// Calls LibTorch's or the native ops.
namespace {

/// Parameters of a layer for the native ops: numeric zero padding only.
struct Layer {
  at::IntArrayRef stride, padding, dilation;
  std::int64_t groups;

  explicit Layer(const torch::nn::detail::ConvNdOptions<2>& options)
      : stride(*options.stride()), dilation(*options.dilation()), groups(options.groups()) {
    const auto* numbers = std::get_if<torch::ExpandingArray<2>>(&options.padding());
    if (numbers == nullptr ||
        !std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode()))
      throw UsageError("native conv2d: takes padding in pixels, with zeros",
                       "model.ops=torch takes the rest");
    padding = **numbers;
  }
  bool is_fusible(const torch::Tensor& weight) const {
    return stride == at::IntArrayRef({1, 1}) && padding[0] <= dilation[0] * (weight.size(2) - 1) &&
           padding[1] <= dilation[1] * (weight.size(3) - 1);
  }
};

constexpr std::int64_t kPoolSide = 2;

}  // namespace

torch::Tensor Ops::conv2d(const torch::Tensor& images, torch::nn::Conv2d& conv) const {
  if (!native_) return conv(images);
  const Layer layer(conv->options);
  return native::conv2d(images, conv->weight, conv->bias, layer.stride, layer.padding,
                        layer.dilation, layer.groups);
}

torch::Tensor Ops::max_pool2d(const torch::Tensor& images, std::int64_t kernel) const {
  if (!native_) return torch::max_pool2d(images, kernel);
  return native::max_pool2d(images, {kernel, kernel}, {kernel, kernel}, {0, 0}, {1, 1});
}

torch::Tensor Ops::conv_relu(const torch::Tensor& images, torch::nn::Conv2d& conv) const {
  torch::Tensor sums = conv2d(images, conv);
  return native_ ? torch::relu_(sums) : torch::relu(sums);
}

torch::Tensor Ops::conv_relu_pool(const torch::Tensor& images, torch::nn::Conv2d& conv) const {
  if (native_ && images.is_cpu()) {
    const Layer layer(conv->options);
    if (layer.is_fusible(conv->weight))
      return native::conv_relu_pool(images, conv->weight, conv->bias, layer.padding, layer.dilation,
                                    layer.groups);
  }
  return max_pool2d(torch::relu(conv2d(images, conv)), kPoolSide);
}

// Draws dropout masks from the model's own generator.

torch::Tensor DropoutImpl::forward(const torch::Tensor& input) {
  if (!is_training() || p_ == 0) return input;
  if (p_ == 1) return input * 0;
  torch::Tensor kept = torch::empty_like(input);
  if (input.is_cpu())
    kept.bernoulli_(1 - p_, generator_);
  else
    kept.bernoulli_(1 - p_);
  return input * kept.div_(1 - p_);
}

void seed_dropout(torch::nn::Module& model, std::uint64_t seed) {
  for (const auto& module : model.modules())
    if (auto* const dropout = module->as<DropoutImpl>(); dropout != nullptr)
      dropout->seed(seed += 0x9e3779b97f4a7c15u);
}

// Synchronised forward and backward pass. Without a reducer, ATen's batch norm.
namespace {

using torch::Tensor;

constexpr double kEps = 1e-5;
constexpr double kMomentum = 0.1;
constexpr std::array<std::int64_t, 3> kAllButChannels{0, 2, 3};

[[noreturn]] void refuse_single_value() {
  throw RunError("batch norm needs more than one value per channel, but this batch has only one",
                 "set loader.drop_last=true, or make the batch or the images larger");
}

/// Reshapes a vector over channels to broadcast with N x C x H x W, in the same type.
Tensor beside(const Tensor& vector, const Tensor& images) {
  return vector.to(images.scalar_type()).view({1, -1, 1, 1});
}

/// Returns the sum over everything but the channels, in float64.
Tensor channel_sums(const Tensor& images) {
  return images.sum(kAllButChannels, /*keepdim=*/false, torch::kDouble);
}

/// Carries a reducer through autograd's graph.
struct ReducerHandle : torch::CustomClassHolder {
  explicit ReducerHandle(std::shared_ptr<StatisticsReducer> r) : reducer(std::move(r)) {}
  std::shared_ptr<StatisticsReducer> reducer;
};

/// What backward needs of a synchronised forward pass.
struct SavedForward {
  Tensor input, weight, mean, inverse, count;
  std::shared_ptr<StatisticsReducer> reducer;

  void save(torch::autograd::AutogradContext* context) const {
    context->save_for_backward({input, weight, mean, inverse, count});
    context->saved_data["reducer"] =
        c10::IValue::make_capsule(c10::make_intrusive<ReducerHandle>(reducer));
  }
  static SavedForward of(torch::autograd::AutogradContext* context) {
    const auto saved = context->get_saved_variables();
    const auto handle = context->saved_data["reducer"].toCapsule();
    return {saved[0], saved[1], saved[2],
            saved[3], saved[4], static_cast<const ReducerHandle&>(*handle).reducer};
  }
};

/// Computes y = (x - mean) / deviation · weight + bias, where mean and deviation are functions of
/// all participants' x. `mean`, `inverse` (1 / deviation) and `count` (values per channel, a vector
/// of one) are float64.
class NormaliseTogether : public torch::autograd::Function<NormaliseTogether> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& input,
                        const Tensor& weight, const Tensor& bias, const Tensor& mean,
                        const Tensor& inverse, const Tensor& count,
                        std::shared_ptr<StatisticsReducer> reducer) {
    SavedForward{input, weight, mean, inverse, count, std::move(reducer)}.save(context);
    const Tensor x = input.to(weight.scalar_type());
    const Tensor scale = beside(inverse * weight, x);
    return torch::addcmul(beside(bias, x), x - beside(mean, x), scale).to(input.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto [input, weight, mean, inverse, count, reducer] = SavedForward::of(context);

    const Tensor dy = gradients[0].to(weight.scalar_type());
    const Tensor x = input.to(weight.scalar_type());
    const Tensor normalised = (x - beside(mean, x)) * beside(inverse, x);
    const Tensor own = torch::cat({channel_sums(dy), channel_sums(dy * normalised)});
    Tensor all = own.clone();
    reducer->all_reduce(all);

    const std::vector<Tensor> own_parts = own.chunk(2);
    const std::vector<Tensor> mean_parts = (all / count).chunk(2);
    const Tensor through_statistics =
        torch::addcmul(beside(mean_parts[0], x), normalised, beside(mean_parts[1], x));
    const Tensor dx = (dy - through_statistics) * beside(inverse * weight, x);
    return {dx.to(input.scalar_type()),
            own_parts[1].to(weight.scalar_type()),
            own_parts[0].to(weight.scalar_type()),
            {},
            {},
            {},
            {}};
  }
};

/// Computes what NormaliseTogether does by ATen's kernels for synchronised batch norm, which exist
/// only for CUDA, in one pass over the images forward and two backward. `mean` and `inverse` have
/// the weight's type, `count` is i32 and has each participant's values per channel.
class NormaliseTogetherOnCuda : public torch::autograd::Function<NormaliseTogetherOnCuda> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& input,
                        const Tensor& weight, const Tensor& bias, const Tensor& mean,
                        const Tensor& inverse, const Tensor& count,
                        std::shared_ptr<StatisticsReducer> reducer) {
    SavedForward{input, weight, mean, inverse, count, std::move(reducer)}.save(context);
    if (input.numel() == 0) return torch::empty_like(input);
    return at::batch_norm_elemt(input, weight, bias, mean, inverse, kEps);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto [input, weight, mean, inverse, count, reducer] = SavedForward::of(context);

    if (input.numel() == 0) {
      Tensor sums = torch::zeros({2 * weight.size(0)}, mean.options());
      reducer->all_reduce(sums);
      const Tensor none = torch::zeros_like(weight);
      return {torch::zeros_like(input), none, none, {}, {}, {}, {}};
    }
    const Tensor dy = gradients[0].contiguous(input.suggest_memory_format());
    // Σdy, Σdy·(x - mean)
    const auto [of_dy, of_product, of_weight, of_bias] = at::batch_norm_backward_reduce(
        dy, input, mean, inverse, weight, /*input_g=*/true, /*weight_g=*/true, /*bias_g=*/true);
    Tensor sums = torch::cat({of_dy, of_product});
    reducer->all_reduce(sums);
    const std::vector<Tensor> parts = sums.chunk(2);
    const Tensor dx =
        at::batch_norm_backward_elemt(dy, input, mean, inverse, weight, parts[0], parts[1], count);
    return {dx, of_weight, of_bias, {}, {}, {}, {}};
  }
};

/// Returns Σx, Σx² and n of a participant's own images, in float64.
Tensor own_statistics(const Tensor& input) {
  const double count = static_cast<double>(input.numel() / input.size(1));
  const Tensor x = input.to(torch::kDouble);
  return torch::cat({channel_sums(x), channel_sums(x * x), torch::full({1}, count, x.options())});
}

/// Returns mean, 1 / deviation and n of a participant's own images on CUDA.
Tensor own_moments(const Tensor& input, const Tensor& like) {
  const std::int64_t channels = input.size(1);
  if (input.numel() == 0) {
    // As good as no value for the sums over all participants, which divide by counts.
    constexpr double kNone = 1e-30;
    return torch::cat({torch::zeros({channels}, like.options()),
                       torch::ones({channels}, like.options()),
                       torch::full({1}, kNone, like.options())});
  }
  const auto [mean, inverse] = at::batch_norm_stats(input, kEps);
  const double count = static_cast<double>(input.numel() / channels);
  return torch::cat({mean, inverse, torch::full({1}, count, mean.options())});
}

}  // namespace

BatchNormImpl::BatchNormImpl(std::int64_t channels) {
  weight = register_parameter("weight", torch::ones(channels));
  bias = register_parameter("bias", torch::zeros(channels));
  running_mean = register_buffer("running_mean", torch::zeros(channels));
  running_var = register_buffer("running_var", torch::ones(channels));
  num_batches_tracked = register_buffer("num_batches_tracked", torch::zeros({}, torch::kLong));
}

Tensor BatchNormImpl::forward(const Tensor& input) {
  if (is_training() && reducer_ != nullptr) return forward_reduced(input);
  if (is_training()) {
    if (input.numel() == input.size(1)) refuse_single_value();
    if (counts_) num_batches_tracked.add_(1);
  }
  return torch::batch_norm(input, weight, bias, running_mean, running_var, is_training(), kMomentum,
                           kEps, at::globalContext().userEnabledCuDNN());
}

Tensor BatchNormImpl::forward_reduced(const Tensor& input) {
  if (input.is_cuda())
    return forward_reduced_on_cuda(input.contiguous(input.suggest_memory_format()));
  Tensor mean, inverse, count;
  {
    const torch::NoGradGuard no_grad;
    const std::int64_t channels = input.size(1);
    Tensor sums = own_statistics(input);
    reducer_->all_reduce(sums);

    count = sums.narrow(0, 2 * channels, 1);
    if (count.item<double>() <= 1) refuse_single_value();
    mean = sums.narrow(0, 0, channels) / count;
    // Rounding may make a constant channel's variance negative.
    const Tensor variance = (sums.narrow(0, channels, channels) / count - mean * mean).clamp_min(0);
    inverse = (variance + kEps).rsqrt();
    running_mean.lerp_(mean.to(running_mean.scalar_type()), kMomentum);
    const Tensor unbiased = variance * (count / (count - 1));
    running_var.lerp_(unbiased.to(running_var.scalar_type()), kMomentum);
    if (counts_) num_batches_tracked.add_(1);
  }
  return NormaliseTogether::apply(input, weight, bias, mean, inverse, count, reducer_);
}

Tensor BatchNormImpl::forward_reduced_on_cuda(const Tensor& input) {
  Tensor mean, inverse, count;
  {
    const torch::NoGradGuard no_grad;
    const std::int64_t channels = input.size(1);
    const Tensor mine = own_moments(input, weight);
    // A sum of rows, of which each participant fills one, gathers them.
    Tensor rows = torch::zeros({reducer_->world(), 2 * channels + 1}, mine.options());
    rows.select(0, reducer_->rank()).copy_(mine);
    reducer_->all_reduce(rows);

    const Tensor counts = rows.select(1, 2 * channels);
    std::tie(mean, inverse) = at::batch_norm_gather_stats_with_counts(
        input, rows.narrow(1, 0, channels), rows.narrow(1, channels, channels), running_mean,
        running_var, kMomentum, kEps, counts);
    count = counts.to(torch::kInt);
    if (counts_) num_batches_tracked.add_(1);
  }
  return NormaliseTogetherOnCuda::apply(input, weight, bias, mean, inverse, count, reducer_);
}

std::size_t set_statistics_reducer(torch::nn::Module& model,
                                   const std::shared_ptr<StatisticsReducer>& reducer) {
  std::size_t found = 0;
  for (const auto& module : model.modules()) {
    if (auto* norm = module->as<BatchNorm>()) {
      norm->set_reducer(reducer);
      ++found;
    }
  }
  return found;
}

}  // namespace millrace::train
