// hflip and vflip: mirror with probability p (torchvision's RandomHorizontalFlip and
// RandomVerticalFlip).
#include "augment/builtin.h"

namespace millrace {
namespace {

constexpr Parameter kProbability = number("p", "0.5", 0, 1, "probability");

struct Hflip {
  static constexpr const char* kName = "hflip";
  static constexpr const char* kHelp = "mirror left and right with probability p";
  static constexpr Parameter kParams[] = {kProbability};

  explicit Hflip(const Values& values) : p(values.number("p")) {}
  Warp warp(Size input, Call& call) const {
    Warp warp = Warp::identity(input);
    const bool flipped = call.chance(p);
    call.report("flipped", flipped);
    if (flipped) warp.set_map(-1, 0, input.width, 0, 1, 0);
    return warp;
  }
  double p;
};

struct Vflip {
  static constexpr const char* kName = "vflip";
  static constexpr const char* kHelp = "mirror top and bottom with probability p";
  static constexpr Parameter kParams[] = {kProbability};

  explicit Vflip(const Values& values) : p(values.number("p")) {}
  Warp warp(Size input, Call& call) const {
    Warp warp = Warp::identity(input);
    const bool flipped = call.chance(p);
    call.report("flipped", flipped);
    if (flipped) warp.set_map(1, 0, 0, 0, -1, input.height);
    return warp;
  }
  double p;
};

}  // namespace

const millrace_unit kHflip = kUnit<Hflip>;
const millrace_unit kVflip = kUnit<Vflip>;

}  // namespace millrace
