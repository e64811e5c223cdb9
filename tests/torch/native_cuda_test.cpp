// Native ops' CUDA kernels against the CPU's ops. Skipped without a GPU.
#include <gtest/gtest.h>

#include "millrace/error.h"
#include "strategies/torch/cuda_library.h"
#include "tests/torch/native_grid.h"
#include "tests/torch/needs_device.h"

namespace millrace::train {
namespace {

using test::conv_cases;
using test::ConvCase;
using test::difference;
using torch::Tensor;

/// Each test is a process of its own (ctest), because the module must come before torch's first
/// call.
class NativeCuda : public ::testing::TestWithParam<ConvCase> {
 protected:
  void SetUp() override { test::load_device_or_skip("CUDA KERNELS ARE NOT TESTED HERE"); }
};

/// Returns output and gradients of conv2d, then of a pooling with overlapping windows, on `device`.
std::vector<Tensor> run(const ConvCase& c, torch::Device device) {
  torch::manual_seed(7);
  const auto leaf = [&](at::IntArrayRef sizes) {
    return torch::randn(sizes, torch::kDouble).to(device).requires_grad_(true);
  };
  const Tensor input = leaf({c.batch, c.in, c.image[0], c.image[1]});
  const Tensor weight = leaf({c.out, c.in / c.groups, c.kernel[0], c.kernel[1]});
  const Tensor bias = leaf({c.out});
  const Tensor sums =
      native::conv2d(input, weight, bias, c.stride, c.padding, c.dilation, c.groups);
  const Tensor output = native::max_pool2d(sums, {3, 3}, {1, 2}, {1, 1}, {1, 1});
  const Tensor deltas = torch::randn(output.sizes(), torch::kDouble).to(device);
  std::vector<Tensor> all{sums, output};
  for (const Tensor& gradient : torch::autograd::grad({output}, {input, weight, bias}, {deltas}))
    all.push_back(gradient);
  for (Tensor& tensor : all) tensor = tensor.cpu();
  return all;
}

TEST_P(NativeCuda, GivesTheCpusValuesAndTheSameBitsAgain) {
  const std::vector<Tensor> host = run(GetParam(), torch::kCPU);
  const std::vector<Tensor> device = run(GetParam(), torch::kCUDA);
  const std::vector<Tensor> again = run(GetParam(), torch::kCUDA);
  for (std::size_t i = 0; i < host.size(); ++i) {
    EXPECT_LE(difference(device[i], host[i]), 1e-12) << test::text_of(GetParam()) << ", " << i;
    EXPECT_TRUE(test::same_bits(device[i], again[i])) << test::text_of(GetParam()) << ", " << i;
  }
}

/// Takes as many images as the shape says, so that sizes differ.
TEST_P(NativeCuda, NormalisesToTheCpusBits) {
  const ConvCase& c = GetParam();
  torch::manual_seed(7);
  const Tensor planes =
      torch::randint(0, 256, {c.batch, c.in, c.image[0], c.image[1]}, torch::kByte);
  for (const torch::ScalarType type : {torch::kFloat, torch::kHalf, torch::kBFloat16})
    for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast})
      for (const bool channels_last : {false, true}) {
        const Tensor levels = planes.contiguous(format);
        const Tensor tables = torch::randn({c.in, 256}).to(type);
        const Tensor host = native::normalize(levels, tables, channels_last);
        const Tensor device =
            native::normalize(levels.to(torch::kCUDA), tables.to(torch::kCUDA), channels_last);
        EXPECT_EQ(device.strides(), host.strides());
        EXPECT_TRUE(torch::equal(device.cpu(), host)) << test::text_of(c);
      }
}

TEST_P(NativeCuda, CountsTheCpusCorrectAnswers) {
  torch::manual_seed(7);
  const std::int64_t rows = GetParam().batch * GetParam().image[0];
  for (const std::int64_t classes : {2, 10, 1000}) {
    const Tensor logits = torch::randint(-3, 4, {rows, classes}).to(torch::kFloat);
    const Tensor labels = rows == 0 ? torch::zeros({0}, torch::kLong)
                                    : logits.argmax(1).bitwise_and(~std::int64_t{1});
    Tensor host = torch::full({1}, 5, torch::kLong);
    Tensor device = host.to(torch::kCUDA);
    native::count_correct(host, logits, labels);
    native::count_correct(device, logits.to(torch::kCUDA), labels.to(torch::kCUDA));
    EXPECT_EQ(device.item<std::int64_t>(), host.item<std::int64_t>()) << classes;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, NativeCuda, ::testing::ValuesIn(conv_cases()),
                         [](const auto& shape) { return std::to_string(shape.index); });

}  // namespace
}  // namespace millrace::train
