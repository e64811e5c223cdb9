// Native max pooling: LibTorch's values and winners, numerical gradients, ties and NaNs.
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/error.h"
#include "tests/torch/gradcheck.h"
#include "tests/torch/native_grid.h"

namespace millrace::train {
namespace {

using torch::Tensor;

struct PoolCase {
  std::vector<std::int64_t> images, kernel, stride, padding, dilation;
};

/// Prints the name of a test; GoogleTest's default prints bytes of pointers.
void PrintTo(const PoolCase& c, std::ostream* out) {
  *out << ::testing::PrintToString(c.images) << " " << ::testing::PrintToString(c.kernel);
}

const std::vector<PoolCase>& cases() {
  static const std::vector<PoolCase> all{
      {{64, 6, 28, 28}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {{33, 3, 9, 7}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {{2, 4, 11, 13}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},  // overlapping windows
      {{1, 1, 6, 5}, {3, 2}, {1, 3}, {1, 0}, {1, 1}},
      {{3, 2, 12, 12}, {3, 3}, {2, 1}, {1, 1}, {2, 3}},
      {{0, 3, 6, 6}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {{5, 1, 5, 5}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},
      {{1, 7, 4, 4}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
  };
  return all;
}

struct PoolAnswer {
  Tensor output, gradient;
};

template <class Op>
PoolAnswer answer_of(const Tensor& images, const Op& op) {
  const Tensor input = images.detach().requires_grad_(true);
  const Tensor output = op(input);
  torch::manual_seed(8);
  const Tensor deltas = torch::randint(1, 100, output.sizes(), output.options());
  return {output.detach(), torch::autograd::grad({output}, {input}, {deltas})[0]};
}

auto native_pool(const PoolCase& c) {
  return [&c](const Tensor& images) {
    return native::max_pool2d(images, c.kernel, c.stride, c.padding, c.dilation);
  };
}
auto torchs_pool(const PoolCase& c) {
  return [&c](const Tensor& images) {
    return at::max_pool2d(images, c.kernel, c.stride, c.padding, c.dilation);
  };
}

class NativePool : public ::testing::TestWithParam<PoolCase> {};

/// Few distinct values, so that ties are frequent; some NaNs and infinities.
Tensor rough_images(const PoolCase& c, torch::ScalarType type) {
  torch::manual_seed(3);
  Tensor images = torch::randint(-2, 3, c.images, torch::TensorOptions(type));
  images.masked_fill_(torch::rand(c.images) < 0.05, NAN);
  images.masked_fill_(torch::rand(c.images) < 0.1, -INFINITY);
  return images;
}

TEST_P(NativePool, GivesLibTorchsValuesAndWinners) {
  const PoolCase& c = GetParam();
  const test::KeptLevel kept;
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    const Tensor images = rough_images(c, type);
    const PoolAnswer theirs = answer_of(images, torchs_pool(c));
    for (const base::Simd level : test::levels()) {
      base::set_simd_level(level);
      for (const test::Lying lying : test::kLyings) {
        SCOPED_TRACE(std::string(base::name_of(level)) + " layout " +
                     std::to_string(static_cast<int>(lying)));
        const PoolAnswer ours = answer_of(test::lay(images, lying), native_pool(c));
        EXPECT_TRUE(torch::allclose(ours.output, theirs.output, 0, 0, /*equal_nan=*/true));
        EXPECT_TRUE(torch::equal(ours.gradient, theirs.gradient));
      }
    }
  }
}

TEST_P(NativePool, FollowsItsNumericalGradient) {
  const PoolCase& c = GetParam();
  std::int64_t count = 1;
  for (const std::int64_t side : c.images) count *= side;
  if (count > 3000) return;
  torch::manual_seed(5);
  const Tensor images = torch::randperm(count, torch::kDouble).view(c.images) / 100;  // no kinks
  EXPECT_LE(test::gradient_error([&](const auto& in) { return native_pool(c)(in[0]); }, {images}),
            1e-7);
}

TEST_P(NativePool, HasTheSameBitsOnAnyNumberOfThreads) {
  const PoolCase& c = GetParam();
  const Tensor images = rough_images(c, torch::kFloat);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const PoolAnswer alone = answer_of(images, native_pool(c));
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    const PoolAnswer shared = answer_of(images, native_pool(c));
    EXPECT_TRUE(test::same_bits(alone.output, shared.output));
    EXPECT_TRUE(test::same_bits(alone.gradient, shared.gradient));
  }
  at::set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Shapes, NativePool, ::testing::ValuesIn(cases()),
                         [](const auto& shape) { return std::to_string(shape.index); });

TEST(NativePoolOnce, TiesGoToTheFirstNaNsToTheLast) {
  const Tensor images = torch::tensor({2.f, 2.f, NAN, 7.f, -INFINITY, -INFINITY,  //
                                       2.f, 1.f, NAN, 1.f, -INFINITY, -INFINITY})
                            .view({1, 1, 2, 6})
                            .requires_grad_(true);
  const Tensor output = native::max_pool2d(images, {2, 2}, {2, 2}, {0, 0}, {1, 1});
  EXPECT_EQ(output.flatten()[0].item<float>(), 2);
  EXPECT_TRUE(std::isnan(output.flatten()[1].item<float>()));
  EXPECT_EQ(output.flatten()[2].item<float>(), -INFINITY);
  output.sum().backward();
  EXPECT_TRUE(torch::equal(images.grad().flatten(), torch::tensor({1.f, 0.f, 0.f, 0.f, 1.f, 0.f,
                                                                   0.f, 0.f, 1.f, 0.f, 0.f, 0.f})))
      << images.grad();
}

TEST(NativePoolOnce, RefusesWhatItDoesNotTake) {
  const auto refusal = [](std::int64_t side, std::int64_t kernel, std::int64_t padding,
                          std::int64_t dilation) -> std::string {
    try {
      native::max_pool2d(torch::zeros({1, 1, side, side}), {kernel, kernel}, {1, 1},
                         {padding, padding}, {dilation, dilation});
      return "not refused";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal(4, 2, 1, 1), "not refused");
  EXPECT_EQ(refusal(4, 3, 2, 1), "native max_pool2d: padding 2x2 is more than half the kernel 3x3");
  EXPECT_EQ(refusal(1, 2, 1, 2),
            "native max_pool2d: a window of dilation 2x2 holds no pixel of an image of 1x1");
  EXPECT_EQ(refusal(2, 3, 0, 1),
            "native max_pool2d: images of 2x2 with padding 0x0 are smaller than the kernel's reach "
            "of 3x3");
}

}  // namespace
}  // namespace millrace::train
