// color_jitter: changes brightness, contrast, saturation and hue by random amounts in a random
// order (torchvision's ColorJitter).
#include <algorithm>
#include <utility>

#include "augment/ops/builtin.h"
#include "augment/ops/color.h"

namespace millrace::augment {
namespace {

constexpr Parameter factors(const char* name) {
  return numbers(name, "[0]", lengths(1, 2), 0, 1000,
                 "factor: b for [max(0, 1 - b), 1 + b], or [low, high]");
}

class ColorJitter {
 public:
  static constexpr const char* kName = "color_jitter";
  static constexpr const char* kHelp =
      "change brightness, contrast, saturation and hue by random amounts in a random order";
  static constexpr Parameter kParams[] = {
      factors("brightness"), factors("contrast"), factors("saturation"),
      numbers("hue", "[0]", lengths(1, 2), -0.5, 0.5,
              "turn of the colour circle: h for [-h, h], or [low, high]")};
  static constexpr Reach kReach{MILLRACE_GLOBAL, 0};

  explicit ColorJitter(const Values& values) {
    for (int i = 0; i < 4; ++i) {
      const Numbers given = values.numbers(kParams[i].name);
      const double center = i == kHue ? 0 : 1;
      Range& range = ranges_[i];
      if (given.size() == 2)
        range = {given[0], given[1]};
      else if (given[0] < 0)
        throw BadUse("a single number of hue is negative", "write hue=0.1, or hue=[-0.1, 0.1]");
      else
        range = {i == kHue ? -given[0] : std::max(0.0, 1 - given[0]), center + given[0]};
      if (range.low > range.high)
        throw BadUse(std::string("the low end of ") + kParams[i].name + " lies above its high end",
                     "write [low, high]");
      range.drawn = range.low != center || range.high != center;
    }
  }

  void apply(Image image, Call& call) const {
    int order[4] = {0, 1, 2, 3};
    for (std::uint32_t left = 4; left > 1; --left)
      std::swap(order[left - 1], order[call.integer(left)]);
    double amounts[4] = {};
    for (int i = 0; i < 4; ++i)
      if (ranges_[i].drawn) amounts[i] = call.uniform(ranges_[i].low, ranges_[i].high);
    int rank = 0;
    for (const int i : order) {
      if (!ranges_[i].drawn) continue;
      call.report(kParams[i].name, amounts[i]);
      call.report(kPlaces[i], ++rank);
      kAdjust[i](image, amounts[i]);
    }
  }

 private:
  static constexpr int kHue = 3;
  struct Range {
    double low = 1, high = 1;
    bool drawn = false;
  };
  static constexpr void (*kAdjust[])(const Image&, double) = {adjust_brightness, adjust_contrast,
                                                              adjust_saturation, adjust_hue};
  static constexpr const char* kPlaces[] = {"brightness_place", "contrast_place",
                                            "saturation_place", "hue_place"};
  Range ranges_[4];
};

}  // namespace

const millrace_unit kColorJitter = kUnit<ColorJitter>;

}  // namespace millrace::augment
