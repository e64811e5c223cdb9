// Tests the elementary functions against libm.
#include "millrace/math.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace::augment {
namespace {

TEST(SinCosDegrees, FollowsLibmClosely) {
  for (double degrees = -720; degrees <= 720; degrees += 0.37) {
    const double radians = degrees * (3.14159265358979323846 / 180.0);
    const SinCos value = sincos_degrees(degrees);
    ASSERT_NEAR(value.sin, std::sin(radians), 3e-15) << degrees;
    ASSERT_NEAR(value.cos, std::cos(radians), 3e-15) << degrees;
  }
}

TEST(SinCosDegrees, RightAnglesAreExact) {
  const SinCos quarter = sincos_degrees(90);
  EXPECT_EQ(quarter.sin, 1.0);
  EXPECT_EQ(quarter.cos, 0.0);
  EXPECT_EQ(sincos_degrees(-180).cos, -1.0);
  EXPECT_EQ(sincos_degrees(270).sin, -1.0);
  EXPECT_EQ(sincos_degrees(0).sin, 0.0);
}

TEST(RoundHalfEven, HalvesGoToTheEvenNeighbour) {
  EXPECT_EQ(round_half_even(0.5), 0.0);
  EXPECT_EQ(round_half_even(1.5), 2.0);
  EXPECT_EQ(round_half_even(-2.5), -2.0);
  EXPECT_EQ(round_half_even(2.4999), 2.0);
}

TEST(FloorToWhole, IsFloor) {
  for (double value = -3; value <= 3; value += 0.125)
    EXPECT_EQ(static_cast<double>(floor_to_whole(value)), std::floor(value));
  EXPECT_EQ(floor_to_whole(-0x1p60 - 1), -(1LL << 60));
  EXPECT_EQ(floor_to_whole(-1e-300), -1);
}

}  // namespace
}  // namespace millrace::augment
