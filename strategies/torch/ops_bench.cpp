// Times both sides of each comparison by turns in one process.
#include "strategies/torch/ops_bench.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/clock.h"
#include "millrace/error.h"
#include "models/native/ops.h"
#include "strategies/torch/model_steps.h"

namespace millrace::train {
namespace {

using torch::Tensor;

constexpr double kTolerance = 1e-4;
constexpr int kComparedSteps = 20;
constexpr double kLeastLoss = 1e-3;  // few images are soon memorised

double seconds_since(std::int64_t begin_ns) {
  return static_cast<double>(base::Clock::steady_ns() - begin_ns) * 1e-9;
}

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
  least.step = std::min(least.step, seconds.step);
}

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr OpSeconds kNever{kForever, kForever, kForever};

OpSeconds time_once(const Side& side) {
  std::int64_t begin = base::Clock::steady_ns();
  const Tensor output = side.forward();
  OpSeconds seconds{.forward = seconds_since(begin)};
  begin = base::Clock::steady_ns();
  const auto gradients = side.gradients(output);
  seconds.backward = seconds_since(begin);
  return seconds;
}

void require_agreement(const OpTiming& timing) {
  if (timing.difference <= kTolerance) return;  // NaN fails the comparison
  throw RunError("bench ops: " + timing.name + ": our results differ from LibTorch's by " +
                 std::to_string(timing.difference) + " of the largest");
}

OpTiming compare(const std::string& name, Side torchs, std::optional<Side> natives, int rounds) {
  OpTiming timing{.name = name, .torch = kNever, .native = {}};
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
  for (int round = 0; round < rounds; ++round) {
    keep_least(timing.torch, time_once(torchs));
    if (natives) keep_least(*timing.native, time_once(*natives));
  }
  timing.torch.step = 0;
  if (natives) timing.native->step = 0;
  return timing;
}

Tensor leaf(const Tensor& tensor) { return tensor.detach().requires_grad_(true); }

Tensor as_pixels_in_memory(const Tensor& tensor) {
  return tensor.contiguous(torch::MemoryFormat::ChannelsLast);
}

/// Converts to the memory format that conv_relu_pool writes.
Tensor batch_last(const Tensor& tensor) {
  return tensor.permute({1, 2, 3, 0}).contiguous().permute({3, 0, 1, 2});
}

/// A convolution of a model, alone and with ReLU and pooling.
struct Layer {
  const char* name;
  std::int64_t in, out, side, kernel, padding;
  bool first;  ///< its input are images, which need no gradient

  Side torchs(std::int64_t batch, bool pooled) const {
    auto inputs = tensors(batch);
    if (first) inputs[0] = as_pixels(inputs[0]);
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
      if (i == 1 || !first) inputs[i] = leaf(as_pixels_in_memory(inputs[i]));
    return {inputs,
            [p = padding, pooled](const auto& t) {
              const Tensor sums = at::conv2d(t[0], t[1], t[2], {1, 1}, {p, p});
              return pooled ? at::max_pool2d(at::relu(sums), 2) : sums;
            },
            {}};
  }
  Side natives(std::int64_t batch, bool pooled) const {
    auto inputs = tensors(batch);
    if (!first) inputs[0] = leaf(batch_last(inputs[0]));
    return {inputs,
            [p = padding, pooled](const auto& t) {
              if (pooled) return native::conv_relu_pool(t[0], t[1], t[2], {p, p}, {1, 1}, 1);
              return native::conv2d(t[0], t[1], t[2], {1, 1}, {p, p}, {1, 1}, 1);
            },
            {}};
  }
  std::string text() const {
    return std::string(name) + " " + std::to_string(in) + "->" + std::to_string(out) + " " +
           std::to_string(kernel) + "x" + std::to_string(kernel) + " of " + std::to_string(side) +
           "x" + std::to_string(side);
  }

 private:
  std::vector<Tensor> tensors(std::int64_t batch) const {
    // Sums of these values are exact, so both sides see the same ties in the pooling windows.
    torch::manual_seed(1);
    const Tensor images = torch::randint(-4, 5, {batch, in, side, side}) / 4;
    const Tensor weight = torch::randint(-16, 17, {out, in, kernel, kernel}) / 64;
    const Tensor bias = torch::randint(-8, 9, {out}) / 16;
    return {first ? images : leaf(images), leaf(weight), leaf(bias)};
  }
};

constexpr Layer kLayers[] = {{"conv1", 1, 6, 28, 5, 2, true}, {"conv2", 6, 16, 14, 5, 0, false}};
/// One convolution of each size that VGG and ResNet have on 32x32 images.
constexpr Layer kCifarLayers[] = {{"vgg", 3, 64, 32, 3, 1, true},
                                  {"vgg", 64, 64, 32, 3, 1, false},
                                  {"vgg", 128, 128, 16, 3, 1, false},
                                  {"vgg", 256, 256, 8, 3, 1, false},
                                  {"vgg", 512, 512, 4, 3, 1, false}};

OpTiming compare_pools(std::int64_t batch, std::int64_t channels, std::int64_t side, int rounds) {
  torch::manual_seed(2);
  const Tensor images = torch::randn({batch, channels, side, side});
  const Side torchs{{leaf(as_pixels_in_memory(images))},
                    [](const auto& in) { return at::max_pool2d(in[0], 2); },
                    {}};
  const Side natives{{leaf(batch_last(images))},
                     [](const auto& in) {
                       return native::max_pool2d(in[0], {2, 2}, {2, 2}, {0, 0}, {1, 1});
                     },
                     {}};
  return compare("pool 2x2 of " + std::to_string(channels) + "x" + std::to_string(side) + "x" +
                     std::to_string(side),
                 torchs, natives, rounds);
}

OpTiming time_linear(std::int64_t batch, std::int64_t in, std::int64_t out, int rounds) {
  const Side side{
      {leaf(torch::randn({batch, in})), leaf(torch::randn({out, in})), leaf(torch::randn({out}))},
      [](const auto& t) { return at::linear(t[0], t[1], t[2]); },
      {}};
  return compare("linear " + std::to_string(in) + "->" + std::to_string(out), side, {}, rounds);
}

/// Runs one step and stores its value in `loss`.
OpSeconds time_step(ModelSteps& model, const Tensor& images, const Tensor& labels, double& loss) {
  std::int64_t begin = base::Clock::steady_ns();
  const Tensor value = model.forward(images, labels);
  OpSeconds seconds{.forward = seconds_since(begin)};
  begin = base::Clock::steady_ns();
  value.backward();
  seconds.backward = seconds_since(begin);
  begin = base::Clock::steady_ns();
  model.step();
  seconds.step = seconds_since(begin);
  loss = value.item<double>();
  return seconds;
}

/// A model as used in the studies.
struct LeNetCase {
  const char* model;
  int channels, side;
};

constexpr LeNetCase kLeNets[] = {
    {"lenet5", 1, 28}, {"lenet5_plain", 1, 28}, {"lenet5_cifar", 3, 32}};

OpTiming compare_lenets(const LeNetCase& one, std::int64_t batch, int rounds) {
  torch::manual_seed(3);
  const Tensor images = torch::randn({batch, one.channels, one.side, one.side});
  const Tensor labels = torch::randint(10, {batch}, torch::kLong);
  const ModelShape shape{.channels = one.channels, .input = {one.side, one.side}, .classes = 10};
  ModelSteps torchs(one.model, shape, false, 4);
  ModelSteps natives(one.model, shape, true, 4);
  OpTiming timing{.name = std::string(one.model) + ", one step", .torch = kNever, .native = kNever};
  for (int i = 0; i < kComparedSteps + rounds; ++i) {
    double their_loss = 0;
    double our_loss = 0;
    const OpSeconds theirs = time_step(torchs, images, labels, their_loss);
    const OpSeconds ours = time_step(natives, images, labels, our_loss);
    if (i < kComparedSteps) {
      timing.difference = worse(timing.difference,
                                std::abs(our_loss - their_loss) / std::max(their_loss, kLeastLoss));
      continue;
    }
    if (i == kComparedSteps) require_agreement(timing);
    keep_least(timing.torch, theirs);
    keep_least(*timing.native, ours);
  }
  return timing;
}

}  // namespace

std::vector<OpTiming> bench_ops(const OpsBenchOptions& options) {
  torch::set_num_threads(options.threads);
  std::vector<OpTiming> timings;
  timings.push_back(time_linear(options.batch, 400, 120, options.rounds));
  for (const Layer& layer : kLayers)
    timings.push_back(compare(layer.text(), layer.torchs(options.batch, false),
                              layer.natives(options.batch, false), options.rounds));
  timings.push_back(compare_pools(options.batch, 6, 28, options.rounds));
  timings.push_back(compare_pools(options.batch, 16, 10, options.rounds));
  for (const Layer& layer : kLayers)
    timings.push_back(compare(layer.text() + ", ReLU, pool", layer.torchs(options.batch, true),
                              layer.natives(options.batch, true), options.rounds));
  for (const LeNetCase& one : kLeNets)
    timings.push_back(compare_lenets(one, options.batch, options.rounds));
  if (options.cifar)
    for (const Layer& layer : kCifarLayers)
      timings.push_back(compare(layer.text(), layer.torchs(options.batch, false),
                                layer.natives(options.batch, false), options.rounds));
  return timings;
}

}  // namespace millrace::train

void millrace_bench_ops(const millrace::train::OpsBenchOptions* options,
                        std::vector<millrace::train::OpTiming>* timings) {
  *timings = millrace::train::bench_ops(*options);
}
