// Tests that the draws of pixel ops follow their declared distributions. Seeds are fixed, so a test
// that passes always passes; bounds are about five standard errors.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "augment/ops/mixing.h"
#include "augment/ops/noise.h"
#include "tests/augment/one_unit.h"

namespace millrace::augment {
namespace {

constexpr int kSamples = 20000;

struct Statistics {
  double low = 1e300, high = -1e300, mean = 0, variance = 0;
};

Statistics statistics(const std::vector<double>& values) {
  Statistics s;
  for (const double v : values) {
    s.low = std::min(s.low, v);
    s.high = std::max(s.high, v);
    s.mean += v / static_cast<double>(values.size());
  }
  for (const double v : values)
    s.variance += (v - s.mean) * (v - s.mean) / static_cast<double>(values.size() - 1);
  return s;
}

Statistics of_draws(const std::function<double(Draw&)>& function) {
  std::vector<double> values;
  for (int i = 0; i < kSamples; ++i) {
    Draw draw(base::stream({11, 0, static_cast<std::uint64_t>(i)}, base::op_id("draws")));
    values.push_back(function(draw));
  }
  return statistics(values);
}

TEST(Distributions, NormalDeviates) {
  const Statistics s = of_draws([](Draw& draw) { return normal_deviate(draw); });
  EXPECT_NEAR(s.mean, 0, 0.035);
  EXPECT_NEAR(s.variance, 1, 0.05);
  EXPECT_GT(s.high, 3.5);
  EXPECT_LT(s.low, -3.5);
}

TEST(Distributions, BetaDeviatesHaveTheirMeanAndVariance) {
  for (const double alpha : {0.01, 0.1, 0.4, 1.0, 3.0, 50.0}) {
    const Statistics s = of_draws([&](Draw& draw) { return beta_deviate(alpha, alpha, draw); });
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(s.mean, 0.5, 5 * std::sqrt(variance / kSamples)) << alpha;
    EXPECT_NEAR(s.variance, variance, 0.05 * variance) << alpha;
    EXPECT_GE(s.low, 0) << alpha;
    EXPECT_LE(s.high, 1) << alpha;
  }
  const Statistics lopsided = of_draws([](Draw& draw) { return beta_deviate(2, 6, draw); });
  EXPECT_NEAR(lopsided.mean, 0.25, 0.006);
}

TEST(LevelNoise, IsARoundedNormalDeviate) {
  const double mean = 3.3, sigma = 20;
  const LevelNoise noise(mean, sigma, LevelNoise::Rounding::toward_zero, LevelNoise::Range::clip);
  // Feeds all words of a fine grid, to test the table and not the generator.
  std::vector<double> share(512);
  constexpr std::uint32_t kStep = 128;
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += kStep)
    share[static_cast<std::size_t>(
        LevelNoise::level(noise.entries(), static_cast<std::uint32_t>(bits)) + 256)] +=
        static_cast<double>(kStep) * 0x1p-32;
  for (int level = -255; level <= 255; ++level) {
    const double low = level > 0 ? level : level - 1, high = level < 0 ? level : level + 1;
    const auto below = [&](double x) {
      return 0.5 * std::erfc(-(x - mean) / (sigma * std::sqrt(2.0)));
    };
    EXPECT_NEAR(share[static_cast<std::size_t>(level + 256)], below(high) - below(low), 2e-6)
        << level;
  }
}

TEST(GaussianNoise, HasItsMeanAndDeviation) {
  OneUnit unit("gaussian_noise{mean=0.1,sigma=0.05}");
  Picture picture({200, 100}, 3);
  std::fill(picture.levels.begin(), picture.levels.end(), 100);
  unit.apply(picture);
  const Statistics s = statistics({picture.levels.begin(), picture.levels.end()});
  // The deviate has a mean of 25.5 levels. Truncation lowers it by half a level and adds a third of
  // a level^2 to the variance of 12.75^2.
  EXPECT_NEAR(s.mean, 100 + 25.5 - 0.5, 0.3);
  EXPECT_NEAR(std::sqrt(s.variance), 12.75, 0.2);
  Picture other = picture;
  std::fill(other.levels.begin(), other.levels.end(), 100);
  unit.apply(other, 1);
  EXPECT_NE(other.levels, picture.levels);
}

TEST(GaussianNoise, ClipsOrWraps) {
  for (const bool clip : {true, false}) {
    OneUnit unit(std::string("gaussian_noise{mean=1,sigma=0,clip=") + (clip ? "true}" : "false}"));
    Picture picture({40, 10}, 1);
    std::fill(picture.levels.begin(), picture.levels.end(), 10);
    unit.apply(picture);
    for (const std::uint8_t level : picture.levels) ASSERT_EQ(level, clip ? 255 : 9);  // 265 - 256
  }
}

TEST(ColorJitter, FactorsAreUniformAndOrdersAllOccur) {
  OneUnit unit("color_jitter{brightness=0.4,contrast=[0.2,0.9],saturation=2,hue=0.1}");
  const std::vector<std::tuple<std::string, double, double>> ranges{
      {"brightness", 0.6, 1.4}, {"contrast", 0.2, 0.9}, {"saturation", 0, 3}, {"hue", -0.1, 0.1}};
  std::map<std::string, std::vector<double>> drawn;
  std::map<int, int> orders;
  Picture picture({1, 1}, 3);
  constexpr int kCalls = 4800;
  for (int i = 0; i < kCalls; ++i) {
    unit.apply(picture, static_cast<std::uint64_t>(i));
    int order = 0;
    for (const auto& range : ranges) {
      const std::string& name = std::get<0>(range);
      drawn[name].push_back(unit.drawn(name));
      order = order * 10 + static_cast<int>(unit.drawn(name + "_place"));
    }
    ++orders[order];
  }
  for (const auto& [name, low, high] : ranges) {
    const Statistics s = statistics(drawn[name]);
    EXPECT_GE(s.low, low);
    EXPECT_LE(s.high, high);
    EXPECT_NEAR(s.mean, (low + high) / 2, (high - low) * 0.022) << name;
    EXPECT_NEAR(s.variance, (high - low) * (high - low) / 12,
                (high - low) * (high - low) / 12 * 0.08)
        << name;
  }
  EXPECT_EQ(orders.size(), 24u);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, kCalls / 24.0, 70) << order;
}

TEST(ColorJitter, WhatIsNotGivenIsLeftAlone) {
  OneUnit unit("color_jitter{brightness=0.5}");
  Picture picture = noise_picture({6, 5}, 3, 3);
  unit.apply(picture, 4);
  EXPECT_TRUE(unit.has_drawn("brightness"));
  for (const char* name : {"contrast", "saturation", "hue"}) EXPECT_FALSE(unit.has_drawn(name));
}

TEST(ColorJitter, AppliesWhatItReportsInThatOrder) {
  OneUnit unit("color_jitter{brightness=0.4,contrast=0.4,saturation=0.4,hue=0.2}");
  for (std::uint64_t sample = 0; sample < 50; ++sample) {
    Picture picture = noise_picture({16, 9}, 3, sample);
    Picture expected = picture;
    unit.apply(picture, sample);
    std::map<int, std::string> steps;
    for (const std::string name : {"brightness", "contrast", "saturation", "hue"}) {
      char value[40];
      std::snprintf(value, sizeof value, "%.17g", unit.drawn(name));
      steps[static_cast<int>(unit.drawn(name + "_place"))] =
          name + (name == "hue" ? "{turn=" : "{factor=") + value + "}";
    }
    ASSERT_EQ(steps.size(), 4u);
    for (const auto& [place, step] : steps) OneUnit(step).apply(expected);
    ASSERT_EQ(picture.levels, expected.levels) << sample;
  }
}

TEST(GaussianBlur, SigmaIsUniform) {
  OneUnit unit("gaussian_blur{kernel_size=3,sigma=[0.5,1.5]}");
  Picture picture({3, 3}, 1);
  std::vector<double> sigmas;
  for (int i = 0; i < 4000; ++i) {
    unit.apply(picture, static_cast<std::uint64_t>(i));
    sigmas.push_back(unit.drawn("sigma"));
  }
  const Statistics s = statistics(sigmas);
  EXPECT_GE(s.low, 0.5);
  EXPECT_LT(s.high, 1.5);
  EXPECT_NEAR(s.mean, 1, 0.025);
}

TEST(Probability, IsThatOfTheParameter) {
  for (const char* name : {"invert", "posterize", "solarize", "autocontrast", "equalize",
                           "grayscale", "sharpness", "random_erasing"}) {
    OneUnit unit(std::string(name) + "{p=0.3}");
    Picture picture({3, 3}, 3);
    double applied = 0;
    for (int i = 0; i < 4000; ++i) {
      unit.apply(picture, static_cast<std::uint64_t>(i));
      applied += unit.drawn("applied");
    }
    EXPECT_NEAR(applied / 4000, 0.3, 0.037) << name;
    const auto before = picture.levels;
    OneUnit(std::string(name) + "{p=0}").apply(picture);
    EXPECT_EQ(picture.levels, before) << name;
  }
}

TEST(RandomErasing, AreasAndShapesAreThoseAskedFor) {
  OneUnit unit("random_erasing{p=1,scale=[0.05,0.2],ratio=[0.5,2],value=255}");
  std::vector<double> areas, log_ratios, centres;
  for (int i = 0; i < 3000; ++i) {
    Picture picture({120, 80}, 1);
    unit.apply(picture, static_cast<std::uint64_t>(i));
    const double width = unit.drawn("width"), height = unit.drawn("height");
    const double x = unit.drawn("x"), y = unit.drawn("y");
    areas.push_back(width * height / (120 * 80));
    log_ratios.push_back(std::log(height / width));
    centres.push_back((x + width / 2) / 120);
    int covered = 0;
    for (int py = 0; py < 80; ++py)
      for (int px = 0; px < 120; ++px) {
        const bool inside = px >= x && px < x + width && py >= y && py < y + height;
        ASSERT_EQ(picture.at(px, py, 0), inside ? 255 : 0);
        covered += inside;
      }
    ASSERT_EQ(covered, static_cast<int>(width * height));
  }
  const Statistics area = statistics(areas), ratio = statistics(log_ratios);
  EXPECT_GE(area.low, 0.05 * 0.95);  // sides are whole pixels
  EXPECT_LE(area.high, 0.2 * 1.05);
  EXPECT_NEAR(area.mean, 0.125, 0.005);
  EXPECT_GE(ratio.low, std::log(0.5) - 0.1);
  EXPECT_LE(ratio.high, std::log(2.0) + 0.1);
  EXPECT_NEAR(ratio.mean, 0, 0.04);
  EXPECT_NEAR(statistics(centres).mean, 0.5, 0.015);
}

TEST(RandomErasing, ModesFillWithWhatTheySay) {
  const std::vector<double> mean{0.485, 0.456, 0.406}, std{0.229, 0.224, 0.225};
  const auto erased = [&](const std::string& text, double area) {
    OneUnit unit("random_erasing{p=1,ratio=[1,1],scale=[" + std::to_string(area) + "," +
                     std::to_string(area) + "]," + text + "}",
                 mean, std);
    Picture picture({300, 300}, 3);
    unit.apply(picture);
    std::vector<std::vector<double>> levels(3);
    const int x = static_cast<int>(unit.drawn("x")), y = static_cast<int>(unit.drawn("y"));
    for (int py = y; py < y + unit.drawn("height"); ++py)
      for (int px = x; px < x + unit.drawn("width"); ++px)
        for (int c = 0; c < 3; ++c)
          levels[static_cast<std::size_t>(c)].push_back(picture.at(px, py, c));
    return levels;
  };
  const auto values = erased("value=[5,6,7]", 0.3), means = erased("mode=mean", 0.3),
             noise = erased("mode=random", 0.9);
  for (std::size_t c = 0; c < 3; ++c) {
    for (const double level : values[c]) ASSERT_EQ(level, 5 + static_cast<double>(c));
    // Compares with the level nearest to the mean: levels are whole.
    for (const double level : means[c]) ASSERT_EQ(level, std::nearbyint(255 * mean[c]));
    const Statistics s = statistics(noise[c]);
    EXPECT_NEAR(s.mean, 255 * mean[c], 1.5);
    // Clipping at 0 and 255, about two deviations away, lowers the deviation a little.
    EXPECT_NEAR(std::sqrt(s.variance), 255 * std[c], 3.5);
  }
}

TEST(RandomErasing, AnImageThatIsTooSmallStays) {
  OneUnit unit("random_erasing{p=1,scale=[1,1],ratio=[1,1],value=1}");
  Picture picture({8, 8}, 1);
  unit.apply(picture);
  EXPECT_EQ(picture.levels, Picture({8, 8}, 1).levels);
  EXPECT_FALSE(unit.has_drawn("width"));
}

TEST(Elastic, DisplacementsHaveTorchvisionsSpread) {
  // Reads displacements off a ramp, whose level moves with them. Noise on [-1, 1) smoothed by a
  // Gaussian of sigma s keeps 1 / (4 pi s^2) of its variance, 1/3.
  OneUnit unit("elastic{alpha=400,sigma=4}");
  std::vector<double> moves;
  for (std::uint64_t sample = 0; sample < 20; ++sample) {
    Picture ramp({200, 120}, 1);
    for (int y = 0; y < 120; ++y)
      for (int x = 0; x < 200; ++x) ramp.at(x, y, 0) = static_cast<std::uint8_t>(x);
    unit.apply(ramp, sample);
    for (int y = 50; y < 70; ++y)
      for (int x = 60; x < 140; ++x) moves.push_back(ramp.at(x, y, 0) - x);
  }
  const Statistics s = statistics(moves);
  const double expected = 200 * std::sqrt(1.0 / 3 / (4 * 3.14159265 * 16));
  EXPECT_NEAR(std::sqrt(s.variance), expected, 0.1 * expected);
  EXPECT_NEAR(s.mean, 0, 0.25 * expected);  // few independent positions
}

TEST(Elastic, NoStrengthChangesNothing) {
  Picture picture = noise_picture({30, 20}, 3, 12);
  const auto before = picture.levels;
  OneUnit("elastic{alpha=0}").apply(picture);
  EXPECT_EQ(picture.levels, before);
}

}  // namespace
}  // namespace millrace::augment
