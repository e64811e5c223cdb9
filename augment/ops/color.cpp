// Colour arithmetic that several ops share.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "augment/ops/builtin.h"
#include "augment/ops/pixels.h"

namespace millrace::augment {
namespace {

/// Truncates to a whole level; values outside 0..255 become its ends.
MILLRACE_SIMD_BODY inline std::uint8_t cut_off(float value) {
  value = value > 0 ? value : 0;
  value = value < 255 ? value : 255;
  return static_cast<std::uint8_t>(static_cast<int>(value));
}

/// Returns a gray level as torch computes and truncates it: two fused steps.
MILLRACE_SIMD_BODY inline int gray_of(float r, float g, float b) {
  return static_cast<int>(fused(b, 0.114f, fused(g, 0.587f, r * 0.2989f)));
}

/// Returns the mean gray level of all pixels; the sum is exact.
float mean_gray(const Image& image) {
  std::uint64_t sum = 0;
  if (image.channels == 1) {
    each_row(image, [&](const std::uint8_t* row, std::size_t bytes) {
      for (std::size_t done = 0; done < bytes; done += 65536) {  // short enough for sums of 32 bits
        std::uint32_t part = 0;
        dispatch_simd(
            [](const std::uint8_t* __restrict in, std::size_t n, std::uint32_t* __restrict out)
                MILLRACE_SIMD_BODY {
                  std::uint32_t total = 0;
                  for (std::size_t i = 0; i < n; ++i) total += in[i];
                  *out = total;
                },
            row + done, std::min<std::size_t>(65536, bytes - done), &part);
        sum += part;
      }
    });
  } else {
    each_rgb_run<false>(image, [&](const RgbRun& run, std::size_t count) {
      std::int32_t part = 0;
      dispatch_simd(
          [](const std::uint8_t* __restrict r, const std::uint8_t* __restrict g,
             const std::uint8_t* __restrict b, std::size_t n, std::int32_t* __restrict out)
              MILLRACE_SIMD_BODY {
                std::int32_t total = 0;
                for (std::size_t i = 0; i < n; ++i) total += gray_of(r[i], g[i], b[i]);
                *out = total;
              },
          run.r, run.g, run.b, count, &part);
      sum += static_cast<std::uint32_t>(part);
    });
  }
  const auto pixels = static_cast<float>(image.width) * static_cast<float>(image.height);
  return static_cast<float>(sum) / pixels;
}

/// Computes 1 - factor in double precision, as Python does.
float rest_of(double factor) { return static_cast<float>(1.0 - factor); }

}  // namespace

void brightness_table(float factor, LevelTable& table) {
  for (std::size_t level = 0; level < 256; ++level)
    table[level] = cut_off(static_cast<float>(level) * factor);
}

void adjust_brightness(const Image& image, double factor) {
  LevelTable tables[3];
  for (int c = 0; c < image.channels; ++c) brightness_table(static_cast<float>(factor), tables[c]);
  apply_levels(image, tables);
}

void adjust_contrast(const Image& image, double factor) {
  const float mean = mean_gray(image);
  LevelTable tables[3];
  for (std::size_t level = 0; level < 256; ++level)
    tables[0][level] = cut_off(
        fused(mean, rest_of(factor), static_cast<float>(level) * static_cast<float>(factor)));
  tables[1] = tables[2] = tables[0];
  apply_levels(image, tables);
}

void adjust_saturation(const Image& image, double factor) {
  if (image.channels == 1) return;
  each_rgb_run<true>(image, [&](RgbRun& run, std::size_t count) {
    dispatch_simd(
        [](std::uint8_t* __restrict r, std::uint8_t* __restrict g, std::uint8_t* __restrict b,
           std::size_t n, float part, float rest) MILLRACE_SIMD_BODY {
          for (std::size_t i = 0; i < n; ++i) {
            const auto gray = static_cast<float>(gray_of(r[i], g[i], b[i]));
            r[i] = cut_off(fused(gray, rest, r[i] * part));
            g[i] = cut_off(fused(gray, rest, g[i] * part));
            b[i] = cut_off(fused(gray, rest, b[i] * part));
          }
        },
        run.r, run.g, run.b, count, static_cast<float>(factor), rest_of(factor));
  });
}

namespace {

/// Turns the hue of one pixel. Computes all cases and selects one, because branches do not
/// vectorise.
MILLRACE_SIMD_BODY inline void turn_hue(std::uint8_t& r, std::uint8_t& g, std::uint8_t& b,
                                        float by) {
  constexpr float kLevel = static_cast<float>(1.0 / 255);
  const float red = r * kLevel, green = g * kLevel, blue = b * kLevel;
  float high = red > green ? red : green;
  high = high > blue ? high : blue;
  float low = red < green ? red : green;
  low = low < blue ? low : blue;
  const float range = high - low;
  const auto none = static_cast<float>(high == low);  // avoids a division by 0
  const float saturation = range / (high + none);
  const float divisor = range + none;
  // Sixths of the circle, from red on: those of the two lower channels, counted from the highest.
  // Selecting them before they are divided takes one division less than selecting the result.
  const float above_red = high - red, above_green = high - green, above_blue = high - blue;
  float more = high == green ? above_red : above_green;
  float less = high == green ? above_blue : above_red;
  float begin = high == green ? 2.0f : 4.0f;
  more = high == red ? above_blue : more;
  less = high == red ? above_green : less;
  begin = high == red ? 0.0f : begin;
  const float sixths = (more / divisor + begin) - less / divisor;
  // Adding a whole turn keeps it from being negative.
  float hue = sixths * static_cast<float>(1.0 / 6) + 1.0f;
  hue -= static_cast<float>(hue >= 1.0f);
  hue += by;
  hue += static_cast<float>(hue < 0.0f);
  hue -= static_cast<float>(hue >= 1.0f);
  const float h6 = hue * 6.0f;
  const int sector = static_cast<int>(h6);  // 6, by rounding, means 0: the same levels
  const float f = h6 - static_cast<float>(sector);
  const float pale = 1.0f - saturation;
  constexpr float kScale = static_cast<float>(256.0 - 1e-3);
  const int v = static_cast<int>(high * kScale);
  const int q = static_cast<int>((1.0f - saturation * f) * high * kScale);
  const int t = static_cast<int>((saturation * f + pale) * high * kScale);
  const int p = static_cast<int>(pale * high * kScale);
  int new_r = sector == 1 ? q : v, new_g = sector == 0 ? t : v, new_b = sector == 2 ? t : v;
  new_r = sector == 4 ? t : new_r;
  new_g = sector == 3 ? q : new_g;
  new_b = sector == 5 ? q : new_b;
  new_g = sector == 6 ? t : new_g;
  new_r = ((sector == 2) | (sector == 3)) ? p : new_r;
  new_g = ((sector == 4) | (sector == 5)) ? p : new_g;
  new_b = ((sector < 2) | (sector == 6)) ? p : new_b;
  r = static_cast<std::uint8_t>(new_r);
  g = static_cast<std::uint8_t>(new_g);
  b = static_cast<std::uint8_t>(new_b);
}

}  // namespace

void adjust_hue(const Image& image, double turn) {
  if (image.channels == 1) return;
  each_rgb_run<true>(image, [&](RgbRun& run, std::size_t count) {
    dispatch_simd(
        [](std::uint8_t* __restrict r, std::uint8_t* __restrict g, std::uint8_t* __restrict b,
           std::size_t n, float by) MILLRACE_SIMD_BODY {
          for (std::size_t i = 0; i < n; ++i) turn_hue(r[i], g[i], b[i], by);
        },
        run.r, run.g, run.b, count, static_cast<float>(turn));
  });
}

void to_gray(const Image& image) {
  if (image.channels == 1) return;
  each_rgb_run<true>(image, [](RgbRun& run, std::size_t count) {
    dispatch_simd(
        [](std::uint8_t* __restrict r, std::uint8_t* __restrict g, std::uint8_t* __restrict b,
           std::size_t n) MILLRACE_SIMD_BODY {
          for (std::size_t i = 0; i < n; ++i) {
            const auto gray = static_cast<std::uint8_t>(gray_of(r[i], g[i], b[i]));
            r[i] = gray;
            g[i] = gray;
            b[i] = gray;
          }
        },
        run.r, run.g, run.b, count);
  });
}

// brightness, contrast, saturation, hue: adjust by a fixed amount (torchvision's functional
// adjust_*). color_jitter draws the amounts.
namespace {

constexpr Parameter factor_param(const char* help) { return number("factor", "1", 0, 1000, help); }

struct Brightness {
  static constexpr const char* kName = "brightness";
  static constexpr const char* kPython = "Brightness(factor)";
  static constexpr const char* kHelp = "multiply every level by a factor";
  static constexpr Parameter kParams[] = {
      factor_param("0: black, 1: unchanged, 2: twice as bright")};

  explicit Brightness(const Values& values) : factor(values.number("factor")) {}
  void levels(Levels levels) const {
    LevelTable table;
    brightness_table(static_cast<float>(factor), table);
    for (int c = 0; c < levels.channels; ++c)
      std::copy(table.begin(), table.end(), levels.table[c]);
  }
  double factor;
};

struct Contrast {
  static constexpr const char* kName = "contrast";
  static constexpr const char* kPython = "Contrast(factor)";
  static constexpr const char* kHelp = "scale every level's distance from the image's mean gray";
  static constexpr Parameter kParams[] = {
      factor_param("0: all gray, 1: unchanged, 2: twice as far")};
  static constexpr Reach kReach{MILLRACE_GLOBAL, 0};

  explicit Contrast(const Values& values) : factor(values.number("factor")) {}
  void apply(Image image) const { adjust_contrast(image, factor); }
  double factor;
};

struct Saturation {
  static constexpr const char* kName = "saturation";
  static constexpr const char* kPython = "Saturation(factor)";
  static constexpr const char* kHelp = "scale every pixel's distance from its gray";
  static constexpr Parameter kParams[] = {factor_param("0: gray, 1: unchanged, 2: twice as far")};

  explicit Saturation(const Values& values) : factor(values.number("factor")) {}
  void apply(Image image) const { adjust_saturation(image, factor); }
  double factor;
};

struct Hue {
  static constexpr const char* kName = "hue";
  static constexpr const char* kPython = "Hue(turn)";
  static constexpr const char* kHelp = "turn the hue of every pixel";
  static constexpr Parameter kParams[] = {
      number("turn", "0", -0.5, 0.5, "fraction of a full turn of the colour circle")};

  explicit Hue(const Values& values) : turn(values.number("turn")) {}
  void apply(Image image) const { adjust_hue(image, turn); }
  double turn;
};

}  // namespace

const Augmentation kBrightness = kAugmentation<Brightness>;
const Augmentation kContrast = kAugmentation<Contrast>;
const Augmentation kSaturation = kAugmentation<Saturation>;
const Augmentation kHue = kAugmentation<Hue>;

// color_jitter: changes brightness, contrast, saturation and hue by random amounts in a random
// order (torchvision's ColorJitter).
namespace {

constexpr Parameter factors(const char* name, const char* fallback = "[0]") {
  return numbers(name, fallback, lengths(1, 2), 0, 1000,
                 "factor: b for [max(0, 1 - b), 1 + b], or [low, high]");
}
constexpr Parameter turns(const char* fallback) {
  return numbers("hue", fallback, lengths(1, 2), -0.5, 0.5,
                 "fraction of a full turn: h for [-h, h], or [low, high]");
}

/// Amounts that are drawn uniformly.
struct Range {
  double low = 1, high = 1;

  /// Reads factors(), or turns() if `center` is 0.
  Range(const Values& values, const char* name, double center) {
    const Numbers given = values.numbers(name);
    if (given.size() == 2) {
      low = given[0];
      high = given[1];
    } else {
      if (given[0] < 0)
        throw BadUse("a single number of hue is negative", "write hue=0.1, or hue=[-0.1, 0.1]");
      low = center == 0 ? -given[0] : std::max(0.0, center - given[0]);
      high = center + given[0];
    }
    if (low > high)
      throw BadUse(std::string("the low end of ") + name + " lies above its high end",
                   "write [low, high]");
  }
  double draw(Call& call) const { return call.uniform(low, high); }
};

class ColorJitter {
 public:
  static constexpr const char* kName = "color_jitter";
  static constexpr const char* kPython = "ColorJitter";
  static constexpr const char* kHelp =
      "change brightness, contrast, saturation and hue by random amounts in a random order";
  static constexpr Parameter kParams[] = {factors("brightness"), factors("contrast"),
                                          factors("saturation"), turns("[0]")};
  static constexpr Reach kReach{MILLRACE_GLOBAL, 0};

  explicit ColorJitter(const Values& values)
      : ranges_{Range(values, "brightness", 1), Range(values, "contrast", 1),
                Range(values, "saturation", 1), Range(values, "hue", 0)} {}

  void apply(Image image, Call& call) const {
    int order[4] = {0, 1, 2, 3};
    for (std::uint32_t left = 4; left > 1; --left)
      std::swap(order[left - 1], order[call.integer(left)]);
    double amounts[4] = {};
    for (int i = 0; i < 4; ++i)
      if (is_drawn(i)) amounts[i] = ranges_[i].draw(call);
    int rank = 0;
    for (const int i : order) {
      if (!is_drawn(i)) continue;
      call.report(kParams[i].name, amounts[i]);
      call.report(kPlaces[i], ++rank);
      kAdjust[i](image, amounts[i]);
    }
  }

 private:
  static constexpr int kHue = 3;
  /// Returns whether an amount may change anything.
  bool is_drawn(int i) const {
    const double same = i == kHue ? 0 : 1;
    return ranges_[i].low != same || ranges_[i].high != same;
  }
  static constexpr void (*kAdjust[])(const Image&, double) = {adjust_brightness, adjust_contrast,
                                                              adjust_saturation, adjust_hue};
  static constexpr const char* kPlaces[] = {"brightness_place", "contrast_place",
                                            "saturation_place", "hue_place"};
  std::array<Range, 4> ranges_;
};

}  // namespace

const Augmentation kColorJitter = kAugmentation<ColorJitter>;

// random_hsv: turns hues and scales saturation and value by random amounts, as Ultralytics'
// RandomHSV does with 8-bit hues, saturations and values. Here a pixel is rounded once.
namespace {

MILLRACE_SIMD_BODY inline float smaller(float a, float b) { return a < b ? a : b; }
MILLRACE_SIMD_BODY inline float larger(float a, float b) { return a > b ? a : b; }
/// Returns the nearest value from 0 to 1.
MILLRACE_SIMD_BODY inline float clamped(float value) { return smaller(larger(value, 0.0f), 1.0f); }

/// Changes one pixel in HSV (Smith, "Color Gamut Transform Pairs", 1978). `by` is in sixths of the
/// circle, 0 to 6. Computes all cases and selects one, because branches do not vectorise.
MILLRACE_SIMD_BODY inline void change_hsv(std::uint8_t& r, std::uint8_t& g, std::uint8_t& b,
                                          float by, float saturation, float value) {
  const float red = r, green = g, blue = b;
  const float high = larger(larger(red, green), blue);
  const float range = high - smaller(smaller(red, green), blue);
  // Sixths of the circle, from red on.
  float difference = high == green ? blue - red : red - green;
  float begin = high == green ? 2.0f : 4.0f;
  difference = high == red ? green - blue : difference;
  begin = high == red ? 0.0f : begin;
  float hue = difference / larger(range, 1.0f) + (begin + by);
  hue += hue < 0.0f ? 6.0f : 0.0f;
  hue -= hue >= 6.0f ? 6.0f : 0.0f;
  const float top = smaller(high * value, 255.0f);
  // The new range is the new value times the new saturation, which is at most 1.
  const float chroma = smaller(top / larger(high, 1.0f) * (range * saturation), top);
  const float rounded = top + 0.5f;
  // A channel is highest within a sixth of its own hue, and lowest within one of the opposite hue.
  const float no_red = clamped(2.0f - std::abs(hue - 3.0f));
  const float no_green = clamped(std::abs(hue - 2.0f) - 1.0f);
  const float no_blue = clamped(std::abs(hue - 4.0f) - 1.0f);
  r = static_cast<std::uint8_t>(static_cast<int>(rounded - chroma * no_red));
  g = static_cast<std::uint8_t>(static_cast<int>(rounded - chroma * no_green));
  b = static_cast<std::uint8_t>(static_cast<int>(rounded - chroma * no_blue));
}

struct RandomHsv {
  static constexpr const char* kName = "random_hsv";
  static constexpr const char* kPython = "RandomHSV";
  static constexpr const char* kHelp = "change hue, saturation and value by random amounts";
  static constexpr Parameter kParams[] = {turns("[0.015]"), factors("saturation", "[0.7]"),
                                          factors("value", "[0.4]")};

  explicit RandomHsv(const Values& values)
      : hue(values, "hue", 0), saturation(values, "saturation", 1), value(values, "value", 1) {}

  void apply(Image image, Call& call) const {
    const double turn = hue.draw(call), more_saturation = saturation.draw(call);
    const double more_value = value.draw(call);
    call.report("hue", turn);
    call.report("saturation", more_saturation);
    call.report("value", more_value);
    if (image.channels == 1) return;
    each_rgb_run<true>(image, [&](RgbRun& run, std::size_t count) {
      dispatch_simd(
          [](std::uint8_t* __restrict r, std::uint8_t* __restrict g, std::uint8_t* __restrict b,
             std::size_t n, float by, float saturations, float values) MILLRACE_SIMD_BODY {
            for (std::size_t i = 0; i < n; ++i)
              change_hsv(r[i], g[i], b[i], by, saturations, values);
          },
          run.r, run.g, run.b, count, static_cast<float>(turn * 6),
          static_cast<float>(more_saturation), static_cast<float>(more_value));
    });
  }

  Range hue, saturation, value;
};

}  // namespace

const Augmentation kRandomHsv = kAugmentation<RandomHsv>;

}  // namespace millrace::augment
