// Tests mixup and cutmix: elements of every type and layout, labels, and the distributions drawn.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "augment/ops/mixing.h"
#include "augment/plan/store.h"
#include "base/simd.h"
#include "tests/augment/one_unit.h"
#include "tests/pipeline/allocations.h"

namespace millrace::augment {
namespace {

constexpr int kClasses = 5;

std::vector<float> one_hot(int label) {
  std::vector<float> labels(kClasses, 0.0f);
  labels[static_cast<std::size_t>(label)] = 1;
  return labels;
}

template <class Element>
constexpr std::int32_t dtype_of() {
  if constexpr (std::is_same_v<Element, float>) return MILLRACE_F32;
  if constexpr (std::is_same_v<Element, std::uint8_t>) return MILLRACE_U8;
  if constexpr (std::is_same_v<Element, F16>) return MILLRACE_F16;
  return MILLRACE_BF16;
}

template <class Element>
millrace_sample form(Size size, int channels, int layout) {
  return {sizeof(millrace_sample), size, channels, dtype_of<Element>(), layout, kClasses};
}

template <class Element>
std::vector<Element> elements(std::size_t count, std::uint64_t seed) {
  std::vector<Element> out;
  Draw draw(base::stream({seed, 0, 0}, base::op_id("elements")));
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<Element, std::uint8_t>)
      out.push_back(static_cast<std::uint8_t>(draw.bits()));
    else
      out.push_back(from_float<Element>(static_cast<float>(draw.uniform(-2.1, 2.6))));
  }
  return out;
}

TEST(Elements, HalvesAreThoseOfTheStore) {
  for (std::uint32_t bits = 0; bits < 0x7F000000; bits += 977) {
    const float value = std::bit_cast<float>(bits);
    if (value < 60000) {
      ASSERT_EQ(from_float<F16>(value).bits, to_f16(value)) << value;
      ASSERT_EQ(from_float<F16>(-value).bits, to_f16(-value)) << value;
    }
    ASSERT_EQ(from_float<BF16>(value).bits, to_bf16(value)) << value;
  }
  for (std::uint32_t half = 0; half < 0x7C00; ++half)  // to single precision and back
    ASSERT_EQ(from_float<F16>(to_float(F16{static_cast<std::uint16_t>(half)})).bits, half);
}

template <class Element>
void expect_mixed(double tolerance) {
  const base::Simd before = base::simd_level();
  const auto form_of_sample = form<Element>({19, 7}, 3, MILLRACE_CHW);
  const auto first = elements<Element>(19 * 7 * 3, 1), second = elements<Element>(19 * 7 * 3, 2);
  std::vector<float> expected;
  for (const base::Simd level : {base::Simd::scalar, base::Simd::avx2, base::Simd::avx512}) {
    if (level > base::simd_supported()) continue;
    base::set_simd_level(level);
    OneUnit unit("mixup{alpha=0.8}");
    auto a = first, b = second;
    auto labels_a = one_hot(1), labels_b = one_hot(3);
    unit.pair(form_of_sample, a.data(), b.data(), labels_a, labels_b);
    const double part = unit.drawn("lambda");
    std::vector<float> mixed;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double x = to_float(first[i]), y = to_float(second[i]);
      ASSERT_NEAR(to_float(a[i]), part * x + (1 - part) * y, tolerance) << i;
      ASSERT_NEAR(to_float(b[i]), part * y + (1 - part) * x, tolerance) << i;
      mixed.push_back(to_float(a[i]));
      mixed.push_back(to_float(b[i]));
    }
    if (expected.empty()) expected = mixed;
    EXPECT_EQ(mixed, expected) << base::name_of(level);
    EXPECT_NEAR(labels_a[1], part, 1e-6);
    EXPECT_NEAR(labels_a[3], 1 - part, 1e-6);
    EXPECT_NEAR(labels_b[3], part, 1e-6);
    EXPECT_NEAR(labels_b[1], 1 - part, 1e-6);
    EXPECT_EQ(labels_a[0], 0);
  }
  base::set_simd_level(before);
}

TEST(Mixup, MixesBothOfAPair) {
  expect_mixed<float>(1e-6);
  expect_mixed<std::uint8_t>(0.5001);
  expect_mixed<F16>(0.0011);
  expect_mixed<BF16>(0.009);
}

TEST(Mixup, LambdaIsBetaDistributed) {
  OneUnit unit("mixup{alpha=0.2}");
  double sum = 0, squares = 0;
  float a = 0, b = 1;
  auto labels_a = one_hot(0), labels_b = one_hot(1);
  constexpr int kCalls = 20000;
  for (int i = 0; i < kCalls; ++i) {
    unit.pair(form<float>({1, 1}, 1, MILLRACE_CHW), &a, &b, labels_a, labels_b,
              static_cast<std::uint64_t>(i));
    sum += unit.drawn("lambda");
    squares += unit.drawn("lambda") * unit.drawn("lambda");
  }
  const double mean = sum / kCalls;
  EXPECT_NEAR(mean, 0.5, 0.016);
  EXPECT_NEAR(squares / kCalls - mean * mean, 1 / (4 * 1.4), 0.005);
}

template <class Element>
void expect_swapped(int layout) {
  const Size size{23, 14};
  const auto same = [](Element x, Element y) { return to_float(x) == to_float(y); };
  const auto first = elements<Element>(23 * 14 * 3, 3), second = elements<Element>(23 * 14 * 3, 4);
  OneUnit unit("cutmix");
  for (std::uint64_t place = 0; place < 50; ++place) {
    auto a = first, b = second;
    auto labels_a = one_hot(0), labels_b = one_hot(4);
    unit.pair(form<Element>(size, 3, layout), a.data(), b.data(), labels_a, labels_b, place);
    const double x0 = unit.drawn("x"), y0 = unit.drawn("y");
    const double width = unit.drawn("width"), height = unit.drawn("height");
    for (int y = 0; y < size.height; ++y)
      for (int x = 0; x < size.width; ++x)
        for (int c = 0; c < 3; ++c) {
          const auto i = static_cast<std::size_t>(layout == MILLRACE_CHW
                                                      ? (c * size.height + y) * size.width + x
                                                      : (y * size.width + x) * 3 + c);
          const bool swapped = x >= x0 && x < x0 + width && y >= y0 && y < y0 + height;
          ASSERT_TRUE(same(a[i], swapped ? second[i] : first[i]));
          ASSERT_TRUE(same(b[i], swapped ? first[i] : second[i]));
        }
    const double own = 1 - width * height / (23 * 14);
    EXPECT_NEAR(labels_a[0], own, 1e-6);
    EXPECT_NEAR(labels_a[4], 1 - own, 1e-6);
    EXPECT_NEAR(labels_b[4], own, 1e-6);
    EXPECT_EQ(unit.drawn("lambda"), own);
  }
}

TEST(Cutmix, SwapsABoxInEveryLayout) {
  expect_swapped<float>(MILLRACE_CHW);
  expect_swapped<float>(MILLRACE_HWC);
  expect_swapped<F16>(MILLRACE_CHW);
  expect_swapped<std::uint8_t>(MILLRACE_HWC);
}

TEST(Cutmix, AreasFollowBetaWhereBoxesFit) {
  // E[1 - lambda] is 1/2 for alpha 1; boxes that leave the image lose a part. For a box of half
  // sides r W and r H, the mean kept is (2 r - r^2)^2, r = sqrt(u) / 2, u uniform.
  OneUnit unit("cutmix");
  std::vector<float> a(64 * 64), b(64 * 64);
  auto labels_a = one_hot(0), labels_b = one_hot(1);
  double sum = 0;
  constexpr int kCalls = 4000;
  for (int i = 0; i < kCalls; ++i) {
    unit.pair(form<float>({64, 64}, 1, MILLRACE_CHW), a.data(), b.data(), labels_a, labels_b,
              static_cast<std::uint64_t>(i));
    sum += 1 - unit.drawn("lambda");
  }
  double expected = 0;
  for (int i = 0; i < 10000; ++i) {
    const double r = 0.5 * std::sqrt((i + 0.5) / 10000);
    expected += std::pow(2 * r - r * r, 2) / 10000;
  }
  EXPECT_NEAR(sum / kCalls, expected, 0.02);
}

TEST(Batches, CallsAllocateNothing) {
  if (!pipeline::counts_allocations()) GTEST_SKIP() << "a sanitizer owns operator new";
  std::vector<float> a(3 * 8 * 8), b(3 * 8 * 8);
  auto labels_a = one_hot(0), labels_b = one_hot(1);
  for (const char* text : {"mixup", "cutmix"}) {
    OneUnit unit(text);
    unit.silence();
    for (std::uint64_t i = 0; i < 50; ++i) {
      const std::uint64_t before = pipeline::allocations();
      unit.pair(form<float>({8, 8}, 3, MILLRACE_CHW), a.data(), b.data(), labels_a, labels_b, i);
      ASSERT_EQ(pipeline::allocations(), before) << text;
    }
  }
}

}  // namespace
}  // namespace millrace::augment
