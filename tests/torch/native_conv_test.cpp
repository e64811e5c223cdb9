// Native convolution, alone and fused with ReLU and pooling: LibTorch's values, numerical
// gradients, equal results on any number of threads, clear messages.
#include <gtest/gtest.h>

#include "millrace/error.h"
#include "tests/torch/gradcheck.h"
#include "tests/torch/native_grid.h"

namespace millrace::train {
namespace {

using test::conv_cases;
using test::ConvCase;
using test::difference;
using test::text_of;
using torch::Tensor;

/// Results and gradients of one call.
struct Answer {
  Tensor output, input, weight, bias;
};

struct Arguments {
  Tensor input, weight, bias;

  explicit Arguments(const ConvCase& c, torch::ScalarType type = torch::kDouble) {
    torch::manual_seed(7);
    input = torch::randn({c.batch, c.in, c.image[0], c.image[1]}, type);
    weight = torch::randn({c.out, c.in / c.groups, c.kernel[0], c.kernel[1]}, type);
    bias = torch::randn({c.out}, type);
  }
};

template <class Op>
Answer answer_of(const Arguments& arguments, const Op& op) {
  const auto leaf = [](const Tensor& t) { return t.detach().requires_grad_(true); };
  const Tensor input = leaf(arguments.input);
  const Tensor weight = leaf(arguments.weight);
  const Tensor bias = leaf(arguments.bias);
  const Tensor output = op(input, weight, bias);
  torch::manual_seed(8);
  const Tensor deltas = torch::randn(output.sizes(), output.options());
  const auto gradients = torch::autograd::grad({output}, {input, weight, bias}, {deltas});
  return {output.detach(), gradients[0], gradients[1], gradients[2]};
}

auto native_conv(const ConvCase& c) {
  return [&c](const Tensor& input, const Tensor& weight, const Tensor& bias) {
    return native::conv2d(input, weight, bias, c.stride, c.padding, c.dilation, c.groups);
  };
}
auto torchs_conv(const ConvCase& c) {
  return [&c](const Tensor& input, const Tensor& weight, const Tensor& bias) {
    return at::conv2d(input, weight, bias, c.stride, c.padding, c.dilation, c.groups);
  };
}
auto native_fused(const ConvCase& c) {
  return [&c](const Tensor& input, const Tensor& weight, const Tensor& bias) {
    return native::conv_relu_pool(input, weight, bias, c.padding, c.dilation, c.groups);
  };
}
auto torchs_three(const ConvCase& c) {
  return [&c](const Tensor& input, const Tensor& weight, const Tensor& bias) {
    return at::max_pool2d(
        at::relu(at::conv2d(input, weight, bias, c.stride, c.padding, c.dilation, c.groups)), 2);
  };
}

bool fuses(const ConvCase& c) {
  for (const std::size_t i : {0u, 1u}) {
    const std::int64_t reach = c.dilation[i] * (c.kernel[i] - 1);
    if (c.stride[i] != 1 || c.padding[i] > reach || c.image[i] + 2 * c.padding[i] - reach < 2)
      return false;
  }
  return true;
}

void expect_close(const Answer& ours, const Answer& theirs, double tolerance) {
  EXPECT_LE(difference(ours.output, theirs.output), tolerance) << "output";
  EXPECT_LE(difference(ours.input, theirs.input), tolerance) << "input's gradient";
  EXPECT_LE(difference(ours.weight, theirs.weight), tolerance) << "weight's gradient";
  EXPECT_LE(difference(ours.bias, theirs.bias), tolerance) << "bias's gradient";
}

class NativeConv : public ::testing::TestWithParam<ConvCase> {};

TEST_P(NativeConv, GivesLibTorchsValuesInEveryLayoutAtEveryLevel) {
  const ConvCase& c = GetParam();
  const test::KeptLevel kept;
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    Arguments arguments(c, type);
    const double tolerance = type == torch::kFloat ? 1e-5 : 1e-13;
    const Answer theirs = answer_of(arguments, torchs_conv(c));
    for (const base::Simd level : test::levels()) {
      base::set_simd_level(level);
      for (const test::Lying lying : test::kLyings) {
        SCOPED_TRACE(text_of(c) + " " + torch::toString(type) + " " +
                     std::string(base::name_of(level)) + " layout " +
                     std::to_string(static_cast<int>(lying)));
        arguments.input = test::lay(arguments.input, lying);
        expect_close(answer_of(arguments, native_conv(c)), theirs, tolerance);
      }
    }
  }
}

TEST_P(NativeConv, FusedGivesLibTorchsValues) {
  const ConvCase& c = GetParam();
  if (!fuses(c)) return;
  const test::KeptLevel kept;
  // In f32 a sum's last bits may change the winner; in f64, with these numbers, they do not.
  Arguments arguments(c);
  const Answer theirs = answer_of(arguments, torchs_three(c));
  for (const base::Simd level : test::levels()) {
    base::set_simd_level(level);
    for (const test::Lying lying : test::kLyings) {
      SCOPED_TRACE(text_of(c) + " " + std::string(base::name_of(level)));
      arguments.input = test::lay(arguments.input, lying);
      expect_close(answer_of(arguments, native_fused(c)), theirs, 1e-13);
    }
  }
}

TEST_P(NativeConv, FollowsItsNumericalGradient) {
  const ConvCase& c = GetParam();
  if (c.batch * c.in * c.image[0] * c.image[1] > 3000) return;
  const Arguments arguments(c);
  const std::vector<Tensor> inputs{arguments.input, arguments.weight, arguments.bias};
  EXPECT_LE(test::gradient_error(
                [&](const auto& in) { return native_conv(c)(in[0], in[1], in[2]); }, inputs),
            1e-7)
      << text_of(c);
  if (!fuses(c)) return;
  EXPECT_LE(test::gradient_error(
                [&](const auto& in) { return native_fused(c)(in[0], in[1], in[2]); }, inputs),
            1e-7)
      << text_of(c);
}

TEST_P(NativeConv, HasTheSameBitsOnAnyNumberOfThreads) {
  const ConvCase& c = GetParam();
  const Arguments arguments(c, torch::kFloat);
  const int before = at::get_num_threads();
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    const Answer plain = answer_of(arguments, native_conv(c));
    std::vector<Tensor> all{plain.output, plain.input, plain.weight, plain.bias};
    if (fuses(c)) {
      const Answer fused = answer_of(arguments, native_fused(c));
      for (const Tensor& t : {fused.output, fused.input, fused.weight, fused.bias})
        all.push_back(t);
    }
    return all;
  };
  const std::vector<Tensor> alone = run(1);
  for (const int threads : {2, 3}) {
    const std::vector<Tensor> shared = run(threads);
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_TRUE(test::same_bits(alone[i], shared[i])) << text_of(c) << ", " << i;
  }
  at::set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Shapes, NativeConv, ::testing::ValuesIn(conv_cases()),
                         [](const auto& shape) { return std::to_string(shape.index); });

TEST(NativeConvOnce, ComputesOnlyTheGradientsThatAreAskedFor) {
  const ConvCase& c = conv_cases()[2];
  const Arguments arguments(c);
  const Tensor weight = arguments.weight.detach().requires_grad_(true);
  const Tensor output = native_conv(c)(arguments.input, weight, arguments.bias);
  const Tensor without = native_conv(c)(arguments.input, weight, {});
  EXPECT_LE(difference(without + arguments.bias.view({1, -1, 1, 1}), output), 1e-14);
  output.sum().backward();
  const Answer all = answer_of(arguments, [&](const auto& i, const auto& w, const auto& b) {
    return native_conv(c)(i, w, b);
  });
  EXPECT_FALSE(arguments.input.grad().defined());
  EXPECT_EQ(weight.grad().sizes(), all.weight.sizes());
}

TEST(NativeConvOnce, OutputsLieAsTheirInput) {
  const ConvCase& c = conv_cases()[2];
  const Arguments arguments(c);
  const auto output_of = [&](test::Lying lying) {
    return native_conv(c)(test::lay(arguments.input, lying), arguments.weight, arguments.bias);
  };
  EXPECT_TRUE(output_of(test::Lying::planes).is_contiguous());
  EXPECT_TRUE(output_of(test::Lying::every_second).is_contiguous());
  EXPECT_TRUE(output_of(test::Lying::pixels).is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_EQ(output_of(test::Lying::batch_last).stride(0), 1);
}

TEST(NativeConvOnce, FusedKeepsNaNsAndStopsGradientsOfTiesAtTheFirst) {
  const auto options = torch::TensorOptions(torch::kFloat);
  const Tensor one = torch::ones({1, 1, 1, 1}, options);
  // Windows: a tie, all below zero, a NaN.
  const Tensor image = torch::tensor({3.f, 3.f, -1.f, -2.f, 1.f, 5.f,  //
                                      3.f, 1.f, -3.f, 0.f, NAN, 9.f})
                           .view({1, 1, 2, 6})
                           .requires_grad_(true);
  const Tensor output = native::conv_relu_pool(image, one, {}, {0, 0}, {1, 1}, 1);
  EXPECT_TRUE(
      test::same_bits(output.isnan().to(torch::kFloat).flatten(), torch::tensor({0.f, 0.f, 1.f})));
  EXPECT_EQ(output.flatten()[0].item<float>(), 3);
  EXPECT_EQ(output.flatten()[1].item<float>(), 0);
  output.sum().backward();
  const Tensor expected =
      torch::tensor({1.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 1.f, 0.f});
  EXPECT_TRUE(torch::equal(image.grad().flatten(), expected)) << image.grad();
}

/// Returns the message with which `work` is rejected.
template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
    return "not refused";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(NativeConvOnce, RefusesWhatItDoesNotTake) {
  const Tensor image = torch::zeros({2, 4, 5, 5});
  const Tensor weight = torch::zeros({6, 4, 3, 3});
  const auto conv = [&](const Tensor& in, const Tensor& w, std::int64_t groups = 1,
                        std::int64_t padding = 0, std::int64_t stride = 1, const Tensor& b = {}) {
    return refusal([&] {
      native::conv2d(in, w, b, {stride, stride}, {padding, padding}, {1, 1}, groups);
    });
  };
  EXPECT_EQ(conv(image, weight), "not refused");
  EXPECT_EQ(conv(image[0], weight),
            "native conv2d: takes batch x channels x height x width, not 4x5x5");
  EXPECT_EQ(conv(image.to(torch::kHalf), weight.to(torch::kHalf)),
            "native conv2d: takes f32 and f64, not Half");
  EXPECT_EQ(conv(image, weight.to(torch::kDouble)),
            "native conv2d: the weight is Double on cpu, the images are Float on cpu");
  EXPECT_EQ(conv(image, weight, 3),
            "native conv2d: 4 channels in and 6 out do not divide into 3 groups");
  EXPECT_EQ(conv(image, weight, 2),
            "native conv2d: a weight of 6x4x3x3 in 2 groups does not take 4 channels");
  EXPECT_EQ(conv(image, weight, 1, -1), "native conv2d: padding -1x-1 is negative");
  EXPECT_EQ(conv(image, weight, 1, 0, 0),
            "native conv2d: kernel 3x3, stride 0x0 and dilation 1x1 must be at least 1");
  EXPECT_EQ(conv(image, weight, 1, 0, 1, torch::zeros({5})),
            "native conv2d: the bias is 5, the output has 6 channels");
  EXPECT_EQ(conv(torch::zeros({2, 4, 2, 5}), weight),
            "native conv2d: images of 2x5 with padding 0x0 are smaller than the kernel's reach of "
            "3x3");
  EXPECT_EQ(refusal([&] {
              native::conv_relu_pool(image, weight, {}, {3, 3}, {1, 1}, 1);
            }),
            "native conv_relu_pool: needs padding within the kernel's reach and an output of at "
            "least 2x2");
}

TEST(NativeConvOnce, HasNoSecondDerivative) {
  const ConvCase& c = conv_cases()[3];
  const Arguments arguments(c);
  const Tensor input = arguments.input.detach().requires_grad_(true);
  const Tensor output = native_conv(c)(input, arguments.weight, arguments.bias);
  const auto first = torch::autograd::grad({output.pow(2).sum()}, {input}, {}, true, true);
  EXPECT_THROW(torch::autograd::grad({first[0].sum()}, {input}), c10::Error);
}

}  // namespace
}  // namespace millrace::train
