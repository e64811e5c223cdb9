// brightness, contrast, saturation, hue: adjust by a fixed amount (torchvision's functional
// adjust_*). color_jitter draws the amounts.
#include "augment/ops/builtin.h"
#include "augment/ops/color.h"

namespace millrace::augment {
namespace {

constexpr Parameter factor_param(const char* help) { return number("factor", "1", 0, 1000, help); }

struct Brightness {
  static constexpr const char* kName = "brightness";
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
  static constexpr const char* kHelp = "move every level away from the image's mean gray";
  static constexpr Parameter kParams[] = {
      factor_param("0: all gray, 1: unchanged, 2: twice as far")};
  static constexpr Reach kReach{MILLRACE_GLOBAL, 0};

  explicit Contrast(const Values& values) : factor(values.number("factor")) {}
  void apply(Image image) const { adjust_contrast(image, factor); }
  double factor;
};

struct Saturation {
  static constexpr const char* kName = "saturation";
  static constexpr const char* kHelp = "move every pixel away from its gray";
  static constexpr Parameter kParams[] = {factor_param("0: gray, 1: unchanged, 2: twice as far")};

  explicit Saturation(const Values& values) : factor(values.number("factor")) {}
  void apply(Image image) const { adjust_saturation(image, factor); }
  double factor;
};

struct Hue {
  static constexpr const char* kName = "hue";
  static constexpr const char* kHelp = "turn the hue of every pixel";
  static constexpr Parameter kParams[] = {
      number("turn", "0", -0.5, 0.5, "part of the full circle")};

  explicit Hue(const Values& values) : turn(values.number("turn")) {}
  void apply(Image image) const { adjust_hue(image, turn); }
  double turn;
};

}  // namespace

const millrace_unit kBrightness = kUnit<Brightness>;
const millrace_unit kContrast = kUnit<Contrast>;
const millrace_unit kSaturation = kUnit<Saturation>;
const millrace_unit kHue = kUnit<Hue>;

}  // namespace millrace::augment
