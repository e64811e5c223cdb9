// Updates of parameters: SGD, Adam and AdamW through LibTorch's fused kernels, autocast, and the
// loss scale.

#include "strategies/torch/optimizer.h"

#include <ATen/autocast_mode.h>

#include <stdexcept>

#include "millrace/error.h"

namespace millrace::train {
namespace {

std::vector<torch::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<torch::Tensor> tensors;
  tensors.reserve(named.size());
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

std::vector<torch::Tensor> gradients_of(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const torch::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

std::optional<torch::Tensor> where_defined(const torch::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// Calls `work` with the number or the tensor that a learning rate is.
template <class Work>
void with_rate(const LearningRate& lr, const Work& work) {
  if (lr.tensor.defined())
    work(lr.tensor);
  else
    work(lr.value);
}

/// Appends `tensors` under "KIND/PARAMETER".
void append(NamedTensors& state, const std::string& kind, const NamedTensors& parameters,
            const std::vector<torch::Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    state.emplace_back(kind + "/" + parameters[i].first, tensors[i]);
}

class Sgd final : public Optimizer {
 public:
  Sgd(const Recipe& recipe, NamedTensors parameters)
      : named_(std::move(parameters)),
        parameters_(tensors_of(named_)),
        momentum_(recipe.number("train.momentum")),
        nesterov_(recipe.boolean("train.nesterov")),
        weight_decay_(recipe.number("train.weight_decay")) {
    if (nesterov_ && momentum_ <= 0)
      throw UsageError("train.nesterov=true needs a momentum",
                       "set train.momentum, to 0.9 for example, or train.nesterov=false");
    if (momentum_ == 0) return;
    for (const torch::Tensor& parameter : parameters_)
      momenta_.push_back(torch::zeros_like(parameter));
  }

  void step(const LearningRate& lr, const torch::Tensor& found_inf) override {
    constexpr double kDampening = 0;
    constexpr bool kMaximize = false;
    constexpr bool kFirst = false;  // without dampening, momenta of 0 are equivalent to none
    with_rate(lr, [&](const auto& rate) {
      at::_fused_sgd_(parameters_, gradients_of(parameters_), momenta_, weight_decay_, momentum_,
                      rate, kDampening, nesterov_, kMaximize, kFirst, /*grad_scale=*/{},
                      where_defined(found_inf));
    });
  }

  NamedTensors state() override {
    NamedTensors state;
    append(state, "momentum", named_, momenta_);
    return state;
  }

 private:
  NamedTensors named_;
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> momenta_;  ///< empty if momentum is 0
  double momentum_;
  bool nesterov_;
  double weight_decay_;
};

class Adam final : public Optimizer {
 public:
  /// `decoupled`: AdamW's weight decay, which the moment estimates do not see.
  Adam(const Recipe& recipe, NamedTensors parameters, bool decoupled)
      : named_(std::move(parameters)),
        parameters_(tensors_of(named_)),
        beta1_(recipe.numbers("train.betas")[0]),
        beta2_(recipe.numbers("train.betas")[1]),
        eps_(recipe.number("train.eps")),
        weight_decay_(recipe.number("train.weight_decay")),
        decoupled_(decoupled) {
    if (recipe.boolean("train.nesterov"))
      throw UsageError("train.nesterov=true works only with train.optimizer=sgd",
                       "set train.nesterov=false");
    for (const torch::Tensor& parameter : parameters_) {
      means_.push_back(torch::zeros_like(parameter));
      squares_.push_back(torch::zeros_like(parameter));
      steps_.push_back(torch::zeros({}, parameter.options().dtype(torch::kFloat32)));
    }
  }

  void step(const LearningRate& lr, const torch::Tensor& found_inf) override {
    constexpr bool kAmsgrad = false;
    constexpr bool kMaximize = false;
    at::_foreach_add_(steps_, 1);
    const auto apply = [&](const auto& fused) {
      with_rate(lr, [&](const auto& rate) {
        fused(parameters_, gradients_of(parameters_), means_, squares_,
              std::vector<torch::Tensor>{}, steps_, rate, beta1_, beta2_, weight_decay_, eps_,
              kAmsgrad, kMaximize, /*grad_scale=*/std::nullopt, where_defined(found_inf));
      });
    };
    if (decoupled_)
      apply([](auto&&... all) { at::_fused_adamw_(all...); });
    else
      apply([](auto&&... all) { at::_fused_adam_(all...); });
    if (!found_inf.defined()) return;
    at::_foreach_add_(steps_, found_inf, /*alpha=*/-1);  // uncounts a skipped step
  }

  NamedTensors state() override {
    NamedTensors state;
    append(state, "exp_avg", named_, means_);
    append(state, "exp_avg_sq", named_, squares_);
    append(state, "step", named_, steps_);
    return state;
  }

 private:
  NamedTensors named_;
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> means_, squares_, steps_;
  double beta1_, beta2_, eps_, weight_decay_;
  bool decoupled_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Recipe& recipe, NamedTensors parameters) {
  const std::string& name = recipe.text("train.optimizer");
  if (name == "sgd") return std::make_unique<Sgd>(recipe, std::move(parameters));
  if (name == "adam" || name == "adamw")
    return std::make_unique<Adam>(recipe, std::move(parameters), name == "adamw");
  throw std::logic_error("train.optimizer=" + name + " has no class");
}

// Updates and swaps averaged weights.

Ema::Ema(const torch::nn::Module& model, double decay) : decay_(decay) {
  if (decay_ == 0) return;
  values_ = state_of(model);
  for (const auto& [name, value] : values_) averages_.emplace_back(name, value.detach().clone());
  updates_ = torch::zeros({}, torch::kLong);
}

void Ema::average() {
  const torch::NoGradGuard no_grad;
  const bool first = !begun();
  // One launch per some hundred tensors on CUDA. On the CPU the calls visit them one by one.
  std::vector<torch::Tensor> moving, moved, copies, copied;
  moving.reserve(values_.size());
  moved.reserve(values_.size());
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const bool moves = values_[i].second.is_floating_point() && !first;
    (moves ? moving : copies).push_back(averages_[i].second);
    (moves ? moved : copied).push_back(values_[i].second);
  }
  if (!moving.empty()) at::_foreach_lerp_(moving, moved, 1 - decay_);
  if (!copies.empty()) at::_foreach_copy_(copies, copied);
}

NamedTensors Ema::count() const {
  if (!updates_.defined()) return {};
  return {{"ema/updates", updates_}};
}

void Ema::swap() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const torch::Tensor kept = values_[i].second.detach();
    values_[i].second.set_data(averages_[i].second);
    averages_[i].second = kept;
  }
}

Autocast::Autocast(const std::string& amp, torch::Device device)
    : on_(amp != "off"), device_(device.type()) {
  if (!on_) return;
  before_ = at::autocast::is_autocast_enabled(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, amp == "f16" ? torch::kFloat16 : torch::kBFloat16);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!on_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, before_);
}

GradScaler::GradScaler(bool enabled, torch::Device device) {
  add_device(device);
  if (!enabled) return;
  scale_ = torch::full({}, 65536.f, torch::TensorOptions(device).dtype(torch::kFloat32));
  growth_ = torch::zeros({}, torch::TensorOptions(device).dtype(torch::kInt32));
}

void GradScaler::add_device(torch::Device device) {
  ones_.push_back(torch::ones({}, torch::TensorOptions(device).dtype(torch::kFloat32)));
}

torch::Tensor GradScaler::root_gradient(const torch::Tensor& loss, double weight) const {
  if (scale_.defined()) {
    const torch::Tensor scale = scale_.to(loss.device());
    return weight == 1 ? scale : scale * weight;
  }
  if (weight == 1)
    for (const torch::Tensor& one : ones_)
      if (one.device() == loss.device()) return one;
  return torch::full_like(loss, weight);
}

torch::Tensor GradScaler::unscale(const std::vector<torch::Tensor>& gradients) {
  if (!scale_.defined()) return {};
  torch::Tensor found_inf = torch::zeros_like(scale_);
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, scale_.reciprocal());
  return found_inf;
}

void GradScaler::update(const torch::Tensor& found_inf) {
  if (!scale_.defined()) return;
  constexpr double kGrowth = 2;
  constexpr double kBackoff = 0.5;
  constexpr std::int64_t kInterval = 2000;
  at::_amp_update_scale_(scale_, growth_, found_inf, kGrowth, kBackoff, kInterval);
}

NamedTensors GradScaler::state() {
  if (!scale_.defined()) return {};
  return {{"scaler/scale", scale_}, {"scaler/growth", growth_}};
}

}  // namespace millrace::train
