// Augmentations that map levels by a table: invert, posterize, solarize, autocontrast and
// equalize.

#include <array>
#include <numeric>

#include "augment/ops/builtin.h"
#include "augment/ops/pixels.h"

namespace millrace::augment {

// invert, posterize, solarize: the new level depends on the old one alone, so these ops are tables
// and cost no pass (torchvision's RandomInvert, RandomPosterize, RandomSolarize).

namespace {

/// Sets the same table, old level to new, for all channels.
template <class Function>
void set_all(Levels levels, const Function& function) {
  for (int c = 0; c < levels.channels; ++c)
    for (int level = 0; level < 256; ++level)
      levels.table[c][level] = static_cast<std::uint8_t>(function(level));
}

struct Invert {
  static constexpr const char* kName = "invert";
  static constexpr const char* kPython = "RandomInvert";
  static constexpr const char* kHelp = "turn every level into 255 - level, with probability p";
  static constexpr Parameter kParams[] = {p_param("0.5")};

  explicit Invert(const Values& values) : p(values.number("p")) {}
  void levels(Levels levels, Call& call) const {
    if (is_applied(call, p)) set_all(levels, [](int level) { return 255 - level; });
  }
  double p;
};

struct Posterize {
  static constexpr const char* kName = "posterize";
  static constexpr const char* kPython = "RandomPosterize(bits)";
  static constexpr const char* kHelp = "keep the upper bits of every level, with probability p";
  static constexpr Parameter kParams[] = {integer("bits", "4", 0, 8, "number of bits kept"),
                                          p_param("0.5")};

  explicit Posterize(const Values& values)
      : mask(0xFF00 >> values.integer("bits")), p(values.number("p")) {}
  void levels(Levels levels, Call& call) const {
    if (is_applied(call, p)) set_all(levels, [&](int level) { return level & mask; });
  }
  int mask;
  double p;
};

struct Solarize {
  static constexpr const char* kName = "solarize";
  static constexpr const char* kPython = "RandomSolarize(threshold)";
  static constexpr const char* kHelp = "invert levels of `threshold` and above, with probability p";
  static constexpr Parameter kParams[] = {
      number("threshold", "128", 0, 255, "lowest level that is inverted"), p_param("0.5")};

  explicit Solarize(const Values& values)
      : threshold(static_cast<float>(values.number("threshold"))), p(values.number("p")) {}
  void levels(Levels levels, Call& call) const {
    if (!is_applied(call, p)) return;
    set_all(levels, [&](int level) {
      return static_cast<float>(level) >= threshold ? 255 - level : level;
    });
  }
  float threshold;
  double p;
};

}  // namespace

const Augmentation kInvert = kAugmentation<Invert>;
const Augmentation kPosterize = kAugmentation<Posterize>;
const Augmentation kSolarize = kAugmentation<Solarize>;

// autocontrast and equalize: tables computed from the levels of an image (torchvision's
// RandomAutocontrast and RandomEqualize on 8-bit tensors: same operations, same levels).

namespace {

constexpr std::size_t kLanes = 96;  // a whole number of pixels and of vectors

struct Extent {
  std::uint8_t low[3] = {255, 255, 255};
  std::uint8_t high[3] = {0, 0, 0};
};

/// Returns the lowest and highest level of each channel.
Extent extent_of(const Image& image) {
  alignas(64) std::array<std::uint8_t, kLanes> low, high;
  low.fill(255);
  high.fill(0);
  each_row(image, [&](const std::uint8_t* row, std::size_t bytes) {
    dispatch_simd(
        [](const std::uint8_t* __restrict in, std::size_t n, std::uint8_t* __restrict lo,
           std::uint8_t* __restrict hi) MILLRACE_SIMD_BODY {
          for (; n >= kLanes; n -= kLanes, in += kLanes)
            for (std::size_t i = 0; i < kLanes; ++i) {
              lo[i] = in[i] < lo[i] ? in[i] : lo[i];
              hi[i] = in[i] > hi[i] ? in[i] : hi[i];
            }
          for (std::size_t i = 0; i < n; ++i) {
            lo[i] = in[i] < lo[i] ? in[i] : lo[i];
            hi[i] = in[i] > hi[i] ? in[i] : hi[i];
          }
        },
        row, bytes, low.data(), high.data());
  });
  Extent extent;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const std::size_t c = i % static_cast<std::size_t>(image.channels);
    extent.low[c] = std::min(extent.low[c], low[i]);
    extent.high[c] = std::max(extent.high[c], high[i]);
  }
  return extent;
}

struct Autocontrast {
  static constexpr const char* kName = "autocontrast";
  static constexpr const char* kPython = "RandomAutocontrast";
  static constexpr const char* kHelp =
      "stretch each channel's levels to 0..255, with probability p";
  static constexpr Parameter kParams[] = {p_param("0.5")};
  static constexpr Reach kReach{MILLRACE_GLOBAL, 0};

  explicit Autocontrast(const Values& values) : p(values.number("p")) {}
  void apply(Image image, Call& call) const {
    if (!is_applied(call, p)) return;
    const Extent extent = extent_of(image);
    LevelTable tables[3];
    for (int c = 0; c < image.channels; ++c) {
      const int low = extent.low[c], high = extent.high[c];
      const float scale = static_cast<float>(high - low) * static_cast<float>(1.0 / 255);
      for (int level = 0; level < 256; ++level) {
        const float value =
            low == high ? static_cast<float>(level) : static_cast<float>(level - low) / scale;
        // Levels that the image does not have may fall outside the range.
        tables[c][static_cast<std::size_t>(level)] =
            static_cast<std::uint8_t>(std::clamp(value, 0.0f, 255.0f));
      }
    }
    apply_levels(image, tables);
  }
  double p;
};

using Histogram = std::array<std::uint32_t, 256>;

/// Counts the levels of each channel. Neighbouring bytes go to different tables, also in gray
/// images, so that counting one level twice does not wait for memory.
void count(const Image& image, Histogram (&counts)[3]) {
  for (Histogram& histogram : counts) histogram.fill(0);
  each_row(image, [&](const std::uint8_t* row, std::size_t bytes) {
    std::size_t i = 0;
    for (; i + 3 <= bytes; i += 3) {
      ++counts[0][row[i]];
      ++counts[1][row[i + 1]];
      ++counts[2][row[i + 2]];
    }
    for (; i < bytes; ++i) ++counts[0][row[i]];
  });
  if (image.channels == 1)
    for (std::size_t level = 0; level < 256; ++level)
      counts[0][level] += counts[1][level] + counts[2][level];
}

/// Computes Pillow's table, which torchvision uses too. A level becomes the number of pixels below
/// it, in steps of 1/255 of the number of pixels below the highest level.
void equalizing_table(const Histogram& counts, std::uint32_t pixels, LevelTable& table) {
  std::size_t highest = 255;
  while (highest > 0 && counts[highest] == 0) --highest;
  const std::uint32_t step = (pixels - counts[highest]) / 255;
  if (step == 0) {
    std::iota(table.begin(), table.end(), std::uint8_t{0});
    return;
  }
  std::uint32_t below = 0;
  for (std::size_t level = 0; level < 256; ++level) {
    table[level] = static_cast<std::uint8_t>(std::min((below + step / 2) / step, 255u));
    below += counts[level];
  }
}

struct Equalize {
  static constexpr const char* kName = "equalize";
  static constexpr const char* kPython = "RandomEqualize";
  static constexpr const char* kHelp =
      "make each channel's levels equally frequent, with probability p";
  static constexpr Parameter kParams[] = {p_param("0.5")};
  static constexpr Reach kReach{MILLRACE_GLOBAL, 0};

  explicit Equalize(const Values& values) : p(values.number("p")) {}
  void apply(Image image, Call& call) const {
    if (!is_applied(call, p)) return;
    Histogram counts[3];
    count(image, counts);
    LevelTable tables[3];
    for (int c = 0; c < image.channels; ++c)
      equalizing_table(
          counts[c],
          static_cast<std::uint32_t>(image.width) * static_cast<std::uint32_t>(image.height),
          tables[c]);
    apply_levels(image, tables);
  }
  double p;
};

}  // namespace

const Augmentation kAutocontrast = kAugmentation<Autocontrast>;
const Augmentation kEqualize = kAugmentation<Equalize>;

}  // namespace millrace::augment
