// Times both sides of each comparison by turns in one process. On CUDA each call includes the time
// until the device has finished; that path has been compiled, not run.
#include "strategies/bench/ops_bench.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/clock.h"
#include "millrace/error.h"
#include "models/architectures.h"
#include "models/native/ops.h"
#include "strategies/bench/model_steps.h"
#include "strategies/torch/device.h"

namespace millrace::train {
namespace {

using torch::Tensor;

constexpr double kTolerance = 1e-4;
constexpr int kComparedSteps = 20;
constexpr std::uint64_t kSeed = 4;
constexpr double kLeastLoss = 1e-3;  // few images are soon memorised

/// An op as one side runs it: from leaf tensors to the op's output.
struct Side {
  std::vector<Tensor> leaves;
  std::function<Tensor(const std::vector<Tensor>&)> op;
  Tensor deltas;  ///< the output's gradient, in its memory format

  Tensor forward() const { return op(leaves); }
  std::vector<Tensor> gradients(const Tensor& output) const {
    std::vector<Tensor> wanted;
    for (const Tensor& leaf : leaves)
      if (leaf.requires_grad()) wanted.push_back(leaf);
    return torch::autograd::grad({output}, wanted, {deltas});
  }
};

double difference(const Tensor& a, const Tensor& b) {
  const double largest = b.abs().max().item<double>();
  return (a - b).abs().max().item<double>() / std::max(largest, 1e-30);
}

/// Returns the larger value; NaN if one is NaN.
double worse(double a, double b) { return b <= a ? a : b; }

void keep_least(OpSeconds& least, const OpSeconds& seconds) {
  least.forward = std::min(least.forward, seconds.forward);
  least.backward = std::min(least.backward, seconds.backward);
  least.step = std::min(least.step, seconds.step);  // 0 for a single op
}

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr OpSeconds kNever{kForever, kForever, kForever};

void require_agreement(const OpTiming& timing) {
  if (timing.difference <= kTolerance) return;  // NaN fails the comparison
  throw RunError("bench ops: " + timing.model + " " + timing.name +
                 ": our results differ from LibTorch's by " + std::to_string(timing.difference) +
                 " of the largest");
}

Tensor leaf(const Tensor& tensor) { return tensor.detach().requires_grad_(true); }

Tensor as_pixels_in_memory(const Tensor& tensor) {
  return tensor.contiguous(torch::MemoryFormat::ChannelsLast);
}

/// Converts to the memory format that conv_relu_pool writes.
Tensor batch_last(const Tensor& tensor) {
  return tensor.permute({1, 2, 3, 0}).contiguous().permute({3, 0, 1, 2});
}

Tensor native_pool(const Tensor& images) {
  return native::max_pool2d(images, {2, 2}, {2, 2}, {0, 0}, {1, 1});
}

/// Operations after a convolution.
enum class Tail { none, relu, relu_pool };

/// A convolution of a model.
struct Convolution {
  std::string name;
  std::int64_t in, out;
  Size input;
  std::int64_t kernel, padding;
  bool first;  ///< its input are images, which need no gradient

  /// `tensors`: images, weight and bias.
  Side torchs(std::vector<Tensor> tensors, Tail tail) const {
    if (tensors[0].is_cpu()) {
      tensors[0] = first ? as_pixels(tensors[0]) : as_pixels_in_memory(tensors[0]);
      tensors[1] = as_pixels_in_memory(tensors[1]);
    }
    return {leaves(tensors),
            [p = padding, tail](const auto& t) {
              Tensor sums = at::conv2d(t[0], t[1], t[2], {1, 1}, {p, p});
              if (tail == Tail::none) return sums;
              return tail == Tail::relu ? at::relu(sums) : at::max_pool2d(at::relu(sums), 2);
            },
            {}};
  }
  Side natives(std::vector<Tensor> tensors, Tail tail) const {
    const bool on_cpu = tensors[0].is_cpu();
    if (!first && on_cpu) tensors[0] = batch_last(tensors[0]);
    return {leaves(tensors),
            [p = padding, tail, on_cpu](const auto& t) {
              if (tail == Tail::relu_pool && on_cpu)
                return native::conv_relu_pool(t[0], t[1], t[2], {p, p}, {1, 1}, 1);
              Tensor sums = native::conv2d(t[0], t[1], t[2], {1, 1}, {p, p}, {1, 1}, 1);
              if (tail == Tail::none) return sums;
              sums = torch::relu_(sums);
              return tail == Tail::relu ? sums : native_pool(sums);
            },
            {}};
  }
  std::string text(Tail tail) const {
    std::string shape = name + " " + std::to_string(in) + "->" + std::to_string(out) + " " +
                        std::to_string(kernel) + "x" + std::to_string(kernel) + " of " +
                        std::to_string(input.height) + "x" + std::to_string(input.width);
    if (tail == Tail::none) return shape;
    return shape + (tail == Tail::relu ? ", ReLU" : ", ReLU, pool");
  }
  struct Sides {
    std::int64_t height, width;
  };
  Sides output() const {
    return {input.height + 2 * padding - kernel + 1, input.width + 2 * padding - kernel + 1};
  }
  std::vector<Tensor> tensors(std::int64_t batch, torch::Device device) const {
    // Sums of these values are exact, so both sides see the same ties in the pooling windows.
    torch::manual_seed(1);
    const Tensor images = torch::randint(-4, 5, {batch, in, input.height, input.width}) / 4;
    const Tensor weight = torch::randint(-16, 17, {out, in, kernel, kernel}) / 64;
    const Tensor bias = torch::randint(-8, 9, {out}) / 16;
    return {images.to(device), weight.to(device), bias.to(device)};
  }

 private:
  std::vector<Tensor> leaves(std::vector<Tensor> tensors) const {
    for (std::size_t i = first ? 1 : 0; i < tensors.size(); ++i) tensors[i] = leaf(tensors[i]);
    return tensors;
  }
};

/// One convolution of each size that VGG and ResNet have on 32x32 images.
const Convolution kCifarConvolutions[] = {{"vgg", 3, 64, {32, 32}, 3, 1, true},
                                          {"vgg", 64, 64, {32, 32}, 3, 1, false},
                                          {"vgg", 128, 128, {16, 16}, 3, 1, false},
                                          {"vgg", 256, 256, {8, 8}, 3, 1, false},
                                          {"vgg", 512, 512, {4, 4}, 3, 1, false}};

/// Images of the studies: CIFAR-10's for its own model, MNIST's for the others.
ModelShape shape_of(const std::string& model) {
  if (model == "lenet5_cifar") return {.channels = 3, .input = {32, 32}, .classes = 10};
  return {.channels = 1, .input = {28, 28}, .classes = 10};
}

class OpsBench {
 public:
  explicit OpsBench(const OpsBenchOptions& options)
      : options_(options),
        cuda_(cuda_for(options)),
        device_(torch_device(options.device)),
        streams_(make_device_streams(device_)) {
    torch::set_num_threads(options.threads);
    if (device_.is_cpu())
      keep_freed_memory();  // as in training
    else
      allow_tf32("off");  // its rounding would exceed the tolerance
  }

  std::vector<OpTiming> run() {
    for (const std::string& model : options_.models) {
      const ModelDescription* const description = describe_model(model);
      const SequentialLayers* const layers =
          description != nullptr ? description->sequential() : nullptr;
      if (layers == nullptr)
        throw UsageError("bench ops: the layers of " + model + " do not follow one another",
                         "use one of the models in: millrace bench ops --help");
      time_layers(model, *layers);
      time_steps(model, /*natively=*/!layers->convolutions.empty());
    }
    if (options_.cifar)
      for (const Convolution& convolution : kCifarConvolutions)
        time_convolution("", convolution, Tail::none);
    return std::move(timings_);
  }

 private:
  /// Loads CUDA where it is asked for, before torch is first called.
  static std::optional<CudaLibrary> cuda_for(const OpsBenchOptions& options) {
    const int index = device_index(options.device);
    if (index < 0) return {};
    return CudaLibrary::load("--device " + options.device, index);
  }

  /// Returns the seconds until `work` is done, on the device too.
  template <class Work>
  double seconds_of(const Work& work) const {
    const std::int64_t begin = base::Clock::steady_ns();
    work();
    if (streams_) streams_->mark()->wait();
    return static_cast<double>(base::Clock::steady_ns() - begin) * 1e-9;
  }

  OpSeconds time_once(const Side& side) const {
    Tensor output;
    OpSeconds seconds{.forward = seconds_of([&] { output = side.forward(); })};
    seconds.backward = seconds_of([&] { side.gradients(output); });
    return seconds;
  }

  /// Times one op. Without `natives`, LibTorch's alone.
  void compare(OpTiming timing, Side torchs, std::optional<Side> natives) {
    const Tensor output = torchs.forward();
    torchs.deltas = torch::randn_like(output);
    if (natives) {
      natives->deltas = torchs.deltas;
      const Tensor ours = natives->forward();
      timing.difference = difference(ours, output);
      const auto theirs = torchs.gradients(output);
      const auto our_gradients = natives->gradients(ours);
      for (std::size_t i = 0; i < theirs.size(); ++i)
        timing.difference = worse(timing.difference, difference(our_gradients[i], theirs[i]));
      require_agreement(timing);
      natives->deltas = torch::empty_like(ours).copy_(torchs.deltas);
      timing.native = kNever;
    }
    timing.torch = kNever;
    for (int round = 0; round < options_.rounds; ++round) {
      keep_least(timing.torch, time_once(torchs));
      if (natives) keep_least(*timing.native, time_once(*natives));
    }
    timings_.push_back(std::move(timing));
  }

  void time_layers(const std::string& model, const SequentialLayers& layers) {
    const SizedLayers sized = sized_layers(model, layers, shape_of(model));
    bool first = true;
    for (const auto& [name, in, input, stage] : sized.convolutions) {
      const Convolution convolution{name,          in,   stage.maps, input, stage.kernel,
                                    stage.padding, first};
      first = false;
      time_convolution(model, convolution, Tail::none);
      if (stage.pools) time_pool(model, convolution);
      time_convolution(model, convolution, stage.pools ? Tail::relu_pool : Tail::relu);
    }
    for (const auto& [name, in, out] : sized.linear) time_linear(model, {name, in, out});
  }

  void time_convolution(const std::string& model, const Convolution& convolution, Tail tail) {
    const std::vector<Tensor> tensors = convolution.tensors(options_.batch, device_);
    compare({.model = model, .name = convolution.text(tail)}, convolution.torchs(tensors, tail),
            convolution.natives(tensors, tail));
  }

  /// Times the pooling of a convolution's output.
  void time_pool(const std::string& model, const Convolution& convolution) {
    const auto [height, width] = convolution.output();
    torch::manual_seed(2);
    const Tensor images =
        torch::randn({options_.batch, convolution.out, height, width}).to(device_);
    const bool on_cpu = device_.is_cpu();
    const Side torchs{{leaf(on_cpu ? as_pixels_in_memory(images) : images)},
                      [](const auto& in) { return at::max_pool2d(in[0], 2); },
                      {}};
    const Side natives{{leaf(on_cpu ? batch_last(images) : images)},
                       [](const auto& in) { return native_pool(in[0]); },
                       {}};
    compare({.model = model,
             .name = "pool 2x2 of " + std::to_string(convolution.out) + "x" +
                     std::to_string(height) + "x" + std::to_string(width)},
            torchs, natives);
  }

  void time_linear(const std::string& model, const SizedLayers::Linear& layer) {
    const auto randn = [&](at::IntArrayRef sizes) { return torch::randn(sizes).to(device_); };
    const Side side{{leaf(randn({options_.batch, layer.in})), leaf(randn({layer.out, layer.in})),
                     leaf(randn({layer.out}))},
                    [](const auto& t) { return at::linear(t[0], t[1], t[2]); },
                    {}};
    compare({.model = model,
             .name = layer.name + " linear " + std::to_string(layer.in) + "->" +
                     std::to_string(layer.out)},
            side, {});
  }

  /// Runs one training step and stores its loss in `loss`.
  OpSeconds step_once(ModelSteps& model, const Tensor& images, const Tensor& labels,
                      double& loss) const {
    Tensor value;
    OpSeconds seconds{.forward = seconds_of([&] { value = model.forward(images, labels); })};
    seconds.backward = seconds_of([&] { value.backward(); });
    seconds.step = seconds_of([&] { model.step(); });
    loss = value.item<double>();
    return seconds;
  }

  void time_steps(const std::string& model, bool natively) {
    const ModelShape shape = shape_of(model);
    torch::manual_seed(3);
    const Tensor images =
        torch::randn({options_.batch, shape.channels, shape.input.height, shape.input.width})
            .to(device_);
    const Tensor labels = torch::randint(10, {options_.batch}, torch::kLong).to(device_);
    ModelSteps torchs(model, shape, /*native=*/false, kSeed, device_);
    std::optional<ModelSteps> natives;
    if (natively) natives.emplace(model, shape, /*native=*/true, kSeed, device_);
    OpTiming timing{.model = model, .name = "step", .torch = kNever};
    if (natives) timing.native = kNever;
    for (int i = 0; i < kComparedSteps + options_.rounds; ++i) {
      double their_loss = 0;
      double our_loss = 0;
      const OpSeconds theirs = step_once(torchs, images, labels, their_loss);
      OpSeconds ours;
      if (natives) ours = step_once(*natives, images, labels, our_loss);
      if (i < kComparedSteps) {
        if (natives)
          timing.difference = worse(timing.difference, std::abs(our_loss - their_loss) /
                                                           std::max(their_loss, kLeastLoss));
        continue;
      }
      if (i == kComparedSteps) require_agreement(timing);
      keep_least(timing.torch, theirs);
      if (natives) keep_least(*timing.native, ours);
    }
    timings_.push_back(std::move(timing));
  }

  const OpsBenchOptions& options_;
  std::optional<CudaLibrary> cuda_;  ///< loaded before any member below uses torch
  torch::Device device_;
  std::unique_ptr<DeviceStreams> streams_;  ///< null on the CPU
  std::vector<OpTiming> timings_;
};

}  // namespace

}  // namespace millrace::train

void millrace_bench_ops(const millrace::train::OpsBenchOptions* options,
                        std::vector<millrace::train::OpTiming>* timings) {
  *timings = millrace::train::OpsBench(*options).run();
}
