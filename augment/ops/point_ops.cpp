// invert, posterize, solarize: the new level depends on the old one alone, so these ops are tables
// and cost no pass (torchvision's RandomInvert, RandomPosterize, RandomSolarize).
#include "augment/ops/builtin.h"
#include "augment/ops/probability.h"

namespace millrace::augment {
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
  static constexpr const char* kHelp = "keep the upper bits of every level, with probability p";
  static constexpr Parameter kParams[] = {integer("bits", "4", 0, 8, "how many bits are kept"),
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

const millrace_unit kInvert = kUnit<Invert>;
const millrace_unit kPosterize = kUnit<Posterize>;
const millrace_unit kSolarize = kUnit<Solarize>;

}  // namespace millrace::augment
