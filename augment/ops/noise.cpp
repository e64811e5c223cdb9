// Adds noise to 8-bit levels.
#include "augment/ops/noise.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "augment/ops/builtin.h"
#include "augment/ops/pixels.h"
#include "millrace/math.hpp"

namespace millrace::augment {

LevelNoise::LevelNoise(double mean, double sigma, Rounding rounding, Range range) {
  constexpr std::size_t kColumns = 512;
  // Returns the lower end of the interval of real numbers that become `level`.
  const auto low_end = [&](int level) {
    if (rounding == Rounding::nearest) return level - 0.5;
    return static_cast<double>(level > 0 ? level : level - 1);
  };
  const auto high_end = [&](int level) {
    if (rounding == Rounding::nearest) return level + 0.5;
    return static_cast<double>(level < 0 ? level : level + 1);
  };
  std::array<double, kColumns> share{};
  const auto add = [&](int level, double p) {
    const int kept = range == Range::clip ? std::clamp(level, -255, 255) : level & 255;
    share[static_cast<std::size_t>(kept + kZero)] += p * kColumns;
  };
  if (sigma <= 0) {
    add(static_cast<int>(rounding == Rounding::nearest ? round_half_even(mean) : mean), 1.0);
  } else {
    const int reach = 256 + static_cast<int>(std::abs(mean) + 9 * sigma);
    for (int level = -reach; level <= reach; ++level)
      add(level, normal_cdf((high_end(level) - mean) / sigma) -
                     normal_cdf((low_end(level) - mean) / sigma));
  }
  // Columns with too little give the rest of their room to one with too much (Vose, "A Linear
  // Algorithm for Generating Random Numbers with a Given Distribution", 1991).
  std::array<std::size_t, kColumns> poor{}, rich{};
  std::size_t poor_count = 0, rich_count = 0;
  for (std::size_t i = 0; i < kColumns; ++i)
    (share[i] < 1 ? poor[poor_count++] : rich[rich_count++]) = i;
  const auto set = [&](std::size_t column, double own, std::size_t other) {
    const double part = std::min(round_half_even(own * 0x1p23), 0x1p23 - 1);
    entries_[column] = static_cast<std::uint32_t>(part) << 9 | static_cast<std::uint32_t>(other);
  };
  while (poor_count > 0 && rich_count > 0) {
    const std::size_t little = poor[--poor_count];
    const std::size_t much = rich[rich_count - 1];
    set(little, share[little], much);
    share[much] -= 1 - share[little];
    if (share[much] < 1) {
      --rich_count;
      poor[poor_count++] = much;
    }
  }
  // The remaining columns are full, except for rounding.
  for (std::size_t i = 0; i < rich_count; ++i) set(rich[i], 1, rich[i]);
  for (std::size_t i = 0; i < poor_count; ++i) set(poor[i], 1, poor[i]);
}

// gaussian_noise: adds an independent normal deviate to each channel of each pixel (torchvision's
// GaussianNoise: on 8-bit tensors noise is truncated to whole levels; on floats it is not).
namespace {

class GaussianNoise {
 public:
  static constexpr const char* kName = "gaussian_noise";
  static constexpr const char* kPython = "GaussianNoise";
  static constexpr const char* kHelp = "add normally distributed noise to every level";
  static constexpr Parameter kParams[] = {
      number("mean", "0", -1, 1, "mean, as a fraction of full scale (255 levels)"),
      number("sigma", "0.1", 0, 10, "standard deviation, as a fraction of full scale"),
      boolean("clip", "true",
              "keep results in 0..255, or floats in 0..1; otherwise levels wrap around")};

  explicit GaussianNoise(const Values& values)
      : clip_(values.boolean("clip")),
        mean_(values.number("mean")),
        sigma_(values.number("sigma")),
        noise_(255 * values.number("mean"), 255 * values.number("sigma"),
               LevelNoise::Rounding::toward_zero,
               clip_ ? LevelNoise::Range::clip : LevelNoise::Range::wrap) {}

  void apply(Image image, Call& call) const {
    BulkBits bits(call);
    each_row(image, [&](std::uint8_t* row, std::size_t bytes) {
      std::size_t count = 0;
      for (std::size_t done = 0; done < bytes; done += count) {
        const std::uint32_t* words = bits.take(bytes - done, count);
        dispatch_simd(
            [](std::uint8_t* __restrict levels, const std::uint32_t* __restrict random,
               std::size_t n, const std::uint32_t* __restrict entries, int most)
                MILLRACE_SIMD_BODY {
                  for (std::size_t i = 0; i < n; ++i) {
                    int level = levels[i] + LevelNoise::level(entries, random[i]);
                    level = level > 0 ? level : 0;
                    level = level < most ? level : most;
                    levels[i] = static_cast<std::uint8_t>(level);
                  }
                },
            row + done, words, count, noise_.entries(),
            clip_ ? 255 : 511);  // noise wraps in 0..255
      }
    });
  }

  void apply_floats(FloatImage image, Call& call) const {
    NormalDraws normal(call);
    for (int y = 0; y < image.height; ++y) {
      float* const row = image.data + y * image.row;
      for (int i = 0; i < image.width * image.channels; ++i) {
        const auto value = static_cast<float>(row[i] + mean_ + sigma_ * normal.next());
        row[i] = clip_ ? std::clamp(value, 0.0f, 1.0f) : value;
      }
    }
  }

 private:
  bool clip_;
  double mean_, sigma_;
  LevelNoise noise_;
};

}  // namespace

const Augmentation kGaussianNoise = kAugmentation<GaussianNoise>;

}  // namespace millrace::augment
