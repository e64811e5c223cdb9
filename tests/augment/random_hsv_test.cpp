// Tests random_hsv: its colours beside HSV in double precision and beside Ultralytics' (see
// tests/golden/make_random_hsv.py), and what it draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/simd.h"
#include "millrace/error.h"
#include "tests/augment/one_unit.h"

namespace millrace::augment {
namespace {

/// Returns a channel of a colour that is changed in HSV: sector by sector, as textbooks do.
double changed(const std::array<double, 3>& rgb, int channel, double turn, double saturation,
               double value) {
  const double high = std::max({rgb[0], rgb[1], rgb[2]}), low = std::min({rgb[0], rgb[1], rgb[2]});
  double h = 0;
  if (high > low) {
    if (high == rgb[0])
      h = (rgb[1] - rgb[2]) / (high - low);
    else if (high == rgb[1])
      h = 2 + (rgb[2] - rgb[0]) / (high - low);
    else
      h = 4 + (rgb[0] - rgb[1]) / (high - low);
  }
  h = std::fmod(h + 6 * turn + 12, 6);
  const double s = high > 0 ? std::min(1.0, (high - low) / high * saturation) : 0;
  const double v = std::min(255.0, high * value);
  const int sector = static_cast<int>(h) % 6;
  const double f = h - std::floor(h);
  const double p = v * (1 - s), q = v * (1 - f * s), t = v * (1 - (1 - f) * s);
  const double cases[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
  return cases[sector][channel];
}

std::string op_of(double turn, double saturation, double value) {
  const auto twice = [](double number) {
    return "[" + std::to_string(number) + "," + std::to_string(number) + "]";
  };
  return "random_hsv{hue=" + twice(turn) + ",saturation=" + twice(saturation) +
         ",value=" + twice(value) + "}";
}

TEST(RandomHsv, RoundsOnceAtAnyLevel) {
  const Picture before = noise_picture({211, 97}, 3, 5);
  const base::Simd level_before = base::simd_level();
  for (const auto& [turn, saturation, value] : {std::array{0.0, 1.0, 1.0},
                                                {0.015, 1.7, 1.4},
                                                {-0.5, 0.3, 0.6},
                                                {0.5, 1.0, 1.0},
                                                {0.2, 0.0, 1.9},
                                                {-0.31, 40.0, 1.0}}) {
    std::vector<std::uint8_t> expected;
    for (const base::Simd level : {base::Simd::scalar, base::Simd::avx2, base::Simd::avx512}) {
      if (level > base::simd_supported()) continue;
      base::set_simd_level(level);
      Picture picture = before;
      OneUnit(op_of(turn, saturation, value)).apply(picture);
      if (expected.empty()) expected = picture.levels;
      EXPECT_EQ(picture.levels, expected) << base::name_of(level);
    }
    for (std::size_t i = 0; i < expected.size(); i += 3)
      for (int c = 0; c < 3; ++c) {
        const std::array rgb{double(before.levels[i]), double(before.levels[i + 1]),
                             double(before.levels[i + 2])};
        ASSERT_NEAR(expected[i + static_cast<std::size_t>(c)],
                    changed(rgb, c, turn, saturation, value), 0.501)
            << rgb[0] << ", " << rgb[1] << ", " << rgb[2] << ", channel " << c;
      }
  }
  base::set_simd_level(level_before);
}

TEST(RandomHsv, IsUltralyticsButForItsRounding) {
  const auto all = nlohmann::json::parse(std::ifstream(MILLRACE_GOLDEN "/random_hsv.json"));
  const int count = all["count"];
  for (const auto& item : all["cases"]) {
    Picture picture({count, 1}, 3);
    for (int i = 0; i < count; ++i) {
      const bool gray = i % 16 == 0;
      picture.at(i, 0, 0) = static_cast<std::uint8_t>(i * 37);
      picture.at(i, 0, 1) = gray ? picture.at(i, 0, 0) : static_cast<std::uint8_t>(i * 101 + 13);
      picture.at(i, 0, 2) = gray ? picture.at(i, 0, 0) : static_cast<std::uint8_t>(i * 197 + 91);
    }
    const auto& amounts = item["amounts"];
    OneUnit(op_of(amounts[0], amounts[1], amounts[2])).apply(picture);
    const std::string hex = item["levels"];
    int largest = 0, sum = 0;
    for (std::size_t i = 0; i < picture.levels.size(); ++i) {
      const int level = std::stoi(hex.substr(2 * i, 2), nullptr, 16);
      const int difference = std::abs(level - picture.levels[i]);
      largest = std::max(largest, difference);
      sum += difference;
    }
    EXPECT_LE(largest, 11) << amounts;
    EXPECT_LT(sum / static_cast<double>(picture.levels.size()), 1.5) << amounts;
  }
}

TEST(RandomHsv, DrawsEachAmountFromItsRange) {
  OneUnit unit("random_hsv{hue=0.1,saturation=[0.5,0.7],value=0.4}");
  double low_turn = 1, high_turn = -1;
  for (std::uint64_t sample = 0; sample < 300; ++sample) {
    Picture picture = noise_picture({4, 3}, 3, sample);
    unit.apply(picture, sample);
    low_turn = std::min(low_turn, unit.drawn("hue"));
    high_turn = std::max(high_turn, unit.drawn("hue"));
    EXPECT_GE(unit.drawn("saturation"), 0.5);
    EXPECT_LT(unit.drawn("saturation"), 0.7);
    EXPECT_GE(unit.drawn("value"), 0.6);
    EXPECT_LT(unit.drawn("value"), 1.4);
  }
  EXPECT_NEAR(low_turn, -0.1, 0.004);
  EXPECT_NEAR(high_turn, 0.1, 0.004);
}

TEST(RandomHsv, LeavesGrayImagesAlone) {
  Picture picture = noise_picture({9, 8}, 1, 3);
  const std::vector<std::uint8_t> before = picture.levels;
  OneUnit("random_hsv").apply(picture);
  EXPECT_EQ(picture.levels, before);
  EXPECT_THROW(OneUnit("random_hsv{hue=-0.1}"), UsageError);
  EXPECT_THROW(OneUnit("random_hsv{value=[1.2,0.8]}"), UsageError);
}

}  // namespace
}  // namespace millrace::augment
