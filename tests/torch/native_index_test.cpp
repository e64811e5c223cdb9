// Arithmetic of the native ops' CUDA kernels, element by element on the host, against the CPU's
// ops. The kernels themselves need a GPU.
#include <gtest/gtest.h>

#include <cmath>

#include "models/native/index.h"
#include "models/native/ops.h"
#include "tests/torch/native_grid.h"

namespace millrace::train {
namespace {

using native::ConvGeometry;
using native::PoolGeometry;
using test::conv_cases;
using test::ConvCase;
using test::difference;
using torch::Tensor;

/// Returns a tensor of `sizes` whose element i is at(i).
template <class T, class At>
Tensor filled(at::IntArrayRef sizes, torch::ScalarType type, const At& at) {
  const Tensor tensor = torch::empty(sizes, type);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.mutable_data_ptr<T>()[i] = at(i);
  return tensor;
}

class NativeIndex : public ::testing::TestWithParam<ConvCase> {};

TEST_P(NativeIndex, ConvolutionsElementsAreTheCpusOps) {
  const ConvCase& c = GetParam();
  if (c.batch * c.out * c.image[0] * c.image[1] > 100'000) return;
  torch::manual_seed(7);
  constexpr auto kType = torch::kDouble;
  const Tensor input =
      torch::randn({c.batch, c.in, c.image[0], c.image[1]}, kType).requires_grad_(true);
  const Tensor weight =
      torch::randn({c.out, c.in / c.groups, c.kernel[0], c.kernel[1]}, kType).requires_grad_(true);
  const Tensor bias = torch::randn({c.out}, kType).requires_grad_(true);
  const Tensor output =
      native::conv2d(input, weight, bias, c.stride, c.padding, c.dilation, c.groups);
  const Tensor deltas = torch::randn(output.sizes(), kType);
  const auto expected = torch::autograd::grad({output}, {input, weight, bias}, {deltas});

  const ConvGeometry g =
      native::conv_geometry(input, weight, bias, c.stride, c.padding, c.dilation, c.groups);
  const double* const x = input.const_data_ptr<double>();
  const double* const w = weight.const_data_ptr<double>();
  const double* const b = bias.const_data_ptr<double>();
  const double* const d = deltas.const_data_ptr<double>();
  EXPECT_LE(difference(filled<double>(output.sizes(), kType,
                                      [&](auto i) { return native::conv_output(g, i, x, w, b); }),
                       output),
            1e-13);
  EXPECT_LE(
      difference(filled<double>(input.sizes(), kType,
                                [&](auto i) { return native::conv_input_gradient(g, i, d, w); }),
                 expected[0]),
      1e-13);
  // Number of partial sums, added as the threads of a block do.
  constexpr std::int64_t kShares = 4;
  const auto in_shares = [](const auto& share) {
    double sum = 0;
    for (std::int64_t k = 0; k < kShares; ++k) sum += share(k);
    return sum;
  };
  EXPECT_LE(difference(filled<double>(weight.sizes(), kType,
                                      [&](auto i) {
                                        return in_shares([&](auto k) {
                                          return native::conv_weight_gradient(g, i, x, d, k,
                                                                              kShares);
                                        });
                                      }),
                       expected[1]),
            1e-13);
  EXPECT_LE(difference(filled<double>(bias.sizes(), kType,
                                      [&](auto i) {
                                        return in_shares([&](auto k) {
                                          return native::conv_bias_gradient(g, i, d, k, kShares);
                                        });
                                      }),
                       expected[2]),
            1e-13);
}

INSTANTIATE_TEST_SUITE_P(Shapes, NativeIndex, ::testing::ValuesIn(conv_cases()),
                         [](const auto& shape) { return std::to_string(shape.index); });

TEST(NativeIndexOnce, NormalisationsElementsAreTheCpusOps) {
  torch::manual_seed(5);
  const Tensor planes = torch::randint(0, 256, {3, 4, 5, 7}, torch::kByte);
  const Tensor numbers = torch::randn({4, 256});
  for (const torch::ScalarType type : {torch::kFloat, torch::kHalf, torch::kBFloat16})
    for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast})
      for (const bool channels_last : {false, true}) {
        const Tensor levels = planes.contiguous(format);
        const Tensor tables = numbers.to(type);
        const Tensor images = native::normalize(levels, tables, channels_last);
        const auto g = native::normalize_geometry(levels, tables, channels_last);
        const auto differ = [&](auto word) {
          using Word = decltype(word);
          std::int64_t count = 0;
          for (std::int64_t i = 0; i < g.elements(); ++i)
            count +=
                native::normalized_element(g, i, levels.const_data_ptr<std::uint8_t>(),
                                           static_cast<const Word*>(tables.const_data_ptr())) !=
                static_cast<const Word*>(images.const_data_ptr())[i];
          return count;
        };
        EXPECT_EQ(type == torch::kFloat ? differ(std::uint32_t{}) : differ(std::uint16_t{}), 0);
        EXPECT_EQ(images[2][3][4][6].item<float>(),
                  tables[3][planes[2][3][4][6].item<std::int64_t>()].item<float>());
      }
  EXPECT_THROW(native::normalize(planes.to(torch::kFloat), numbers, false), c10::Error);
  EXPECT_THROW(native::normalize(planes.narrow(3, 0, 4), numbers, false), c10::Error);
  EXPECT_THROW(native::normalize(planes, numbers.narrow(0, 0, 3).contiguous(), false), c10::Error);
}

TEST(NativeIndexOnce, PoolingsElementsAreTheCpusOps) {
  struct Window {
    std::vector<std::int64_t> kernel, stride, padding, dilation;
  };
  for (const Window& c :
       {Window{{2, 2}, {2, 2}, {0, 0}, {1, 1}}, Window{{3, 3}, {2, 1}, {1, 1}, {1, 1}},
        Window{{3, 2}, {1, 3}, {1, 1}, {2, 3}}}) {
    torch::manual_seed(3);
    Tensor input = torch::randint(-2, 3, {3, 2, 9, 11}, torch::TensorOptions(torch::kFloat));
    input.masked_fill_(torch::rand(input.sizes()) < 0.05, NAN);
    input.requires_grad_(true);
    const Tensor output = native::max_pool2d(input, c.kernel, c.stride, c.padding, c.dilation);
    const Tensor deltas =
        torch::randint(1, 100, output.sizes(), torch::TensorOptions(torch::kFloat));
    const auto expected = torch::autograd::grad({output}, {input}, {deltas});

    const PoolGeometry g = native::pool_geometry(input, c.kernel, c.stride, c.padding, c.dilation);
    const float* const x = input.const_data_ptr<float>();
    const Tensor winners = filled<std::int32_t>(
        output.sizes(), torch::kInt, [&](auto i) { return native::pool_winner(g, i, x); });
    const Tensor values = input.detach().flatten(2).gather(2, winners.flatten(2).to(torch::kLong));
    EXPECT_TRUE(torch::allclose(values.view(output.sizes()), output, 0, 0, /*equal_nan=*/true));
    const Tensor gradient = filled<float>(input.sizes(), torch::kFloat, [&](auto i) {
      return native::pool_input_gradient(g, i, deltas.const_data_ptr<float>(),
                                         winners.const_data_ptr<std::int32_t>());
    });
    EXPECT_TRUE(torch::equal(gradient, expected[0]));
  }
}

}  // namespace
}  // namespace millrace::train
