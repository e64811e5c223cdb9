// Tests elements of the batch: rounding of 16-bit types, tables in front, layouts.
#include "augment/plan/store.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "augment/plan/resample.h"

namespace millrace::augment {
namespace {

/// Returns the exact value of f16 bits.
double f16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double mantissa = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

double bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Checks that no neighbour is nearer, and that of two equally near ones the even one was taken.
void expect_nearest(float value, std::uint16_t got, double (*value_of)(std::uint16_t)) {
  const double distance = std::abs(value_of(got) - value);
  for (const int step : {-1, 1}) {
    const auto neighbour = static_cast<std::uint16_t>(got + step);
    if (std::signbit(value_of(neighbour)) != std::signbit(value)) continue;
    const double other = std::abs(value_of(neighbour) - static_cast<double>(value));
    if (std::isinf(value_of(neighbour)) || std::isnan(value_of(neighbour))) continue;
    ASSERT_GE(other, distance) << value;
    if (other == distance) {
      ASSERT_EQ(got % 2, 0) << value;
    }
  }
}

TEST(Store, RoundsTo16BitsToNearestEven) {
  EXPECT_EQ(to_f16(1.0f), 0x3c00);
  EXPECT_EQ(to_f16(-2.0f), 0xc000);
  EXPECT_EQ(to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(to_f16(1.0f + 1.0f / 2048), 0x3c00) << "a half goes to the even neighbour";
  EXPECT_EQ(to_f16(1.0f + 3.0f / 2048), 0x3c02);
  EXPECT_EQ(to_f16(std::ldexp(1.0f, -25)), 0x0000);
  EXPECT_EQ(to_f16(std::ldexp(1.5f, -25)), 0x0001);
  EXPECT_EQ(to_f16(-0.0f), 0x8000);
  EXPECT_TRUE(std::isnan(f16_value(to_f16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(to_bf16(1.0f + 1.0f / 256), 0x3f80);
  EXPECT_EQ(to_bf16(1.0f + 3.0f / 256), 0x3f82);
  for (std::uint32_t i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(i * 2654435761u);
    if (std::isnan(value)) continue;
    if (std::abs(value) < 65500) expect_nearest(value, to_f16(value), f16_value);
    if (std::abs(value) < 1e38f) expect_nearest(value, to_bf16(value), bf16_value);
  }
}

TEST(Store, TablesComeBeforeTheElements) {
  std::uint8_t pixels[3 * 5 + kTailSlack] = {};
  for (std::uint8_t i = 0; i < 15; ++i) pixels[i] = static_cast<std::uint8_t>(i * 16);
  Pass pass;
  pass.source = interleaved(pixels, {5, 1}, 3);
  pass.output = {5, 1};
  LevelTable tables[3];
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t i = 0; i < 256; ++i)
      tables[c][i] = static_cast<std::uint8_t>(c == 1 ? 255 - i : i ^ c);
  ResampleScratch scratch;
  for (const Layout layout : {Layout::chw, Layout::hwc}) {
    const Store store(DType::f32, layout, 3, {0.1, 0.2, 0.3}, {0.4, 0.5, 0.6});
    float out[15];
    resample(pass, store, reinterpret_cast<std::byte*>(out), scratch, tables);
    for (std::size_t x = 0; x < 5; ++x)
      for (std::size_t c = 0; c < 3; ++c)
        EXPECT_EQ(out[layout == Layout::chw ? c * 5 + x : x * 3 + c],
                  store.levels(static_cast<int>(c))[tables[c][pixels[x * 3 + c]]]);
  }
}

}  // namespace
}  // namespace millrace::augment
