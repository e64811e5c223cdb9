// hflip and vflip: mirror with probability p (torchvision's RandomHorizontalFlip and
// RandomVerticalFlip).
#include "augment/ops/builtin.h"

namespace millrace::augment {
namespace {

class Flip {
 public:
  static constexpr Parameter kParams[] = {number("p", "0.5", 0, 1, "probability")};

  explicit Flip(const Values& values) : p_(values.number("p")) {}

 protected:
  bool drawn(Call& call) const {
    const bool flipped = call.chance(p_);
    call.report("flipped", flipped);
    return flipped;
  }

 private:
  double p_;
};

struct Hflip : Flip {
  static constexpr const char* kName = "hflip";
  static constexpr const char* kPython = "HFlip";
  static constexpr const char* kHelp = "mirror left and right with probability p";
  using Flip::Flip;
  Warp warp(Size input, Call& call) const {
    Warp warp = Warp::identity(input);
    if (drawn(call)) warp.set_map(-1, 0, input.width, 0, 1, 0);
    return warp;
  }
};

struct Vflip : Flip {
  static constexpr const char* kName = "vflip";
  static constexpr const char* kPython = "VFlip";
  static constexpr const char* kHelp = "mirror top and bottom with probability p";
  using Flip::Flip;
  Warp warp(Size input, Call& call) const {
    Warp warp = Warp::identity(input);
    if (drawn(call)) warp.set_map(1, 0, 0, 0, -1, input.height);
    return warp;
  }
};

}  // namespace

const Augmentation kHflip = kAugmentation<Hflip>;
const Augmentation kVflip = kAugmentation<Vflip>;

}  // namespace millrace::augment
