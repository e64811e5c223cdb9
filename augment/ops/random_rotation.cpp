// random_rotation: rotates about the centre, counter-clockwise (torchvision's RandomRotation
// without expand, because all samples of a batch have one size).
#include <algorithm>

#include "augment/ops/builtin.h"
#include "augment/ops/random_affine.h"

namespace millrace::augment {
namespace {

class RandomRotation {
 public:
  static constexpr const char* kName = "random_rotation";
  static constexpr const char* kHelp = "rotate counter-clockwise by an angle drawn uniformly";
  static constexpr Parameter kParams[] = {
      millrace::numbers("degrees", "[0]", lengths(1, 2), -360, 360,
                        "angle: d for [-d, d], or [low, high]"),
      choice("interpolation", "nearest", "nearest|bilinear", "how positions are read"),
      millrace::numbers("center", "[]", lengths(0, 2), -65535, 65535,
                        "[x, y] in pixels from the upper left corner; []: the image's centre"),
      fill_param()};

  explicit RandomRotation(const Values& values) : interpolation_(values.interpolation()) {
    const Numbers degrees = values.numbers("degrees");
    low_ = degrees.size() == 1 ? -degrees[0] : degrees[0];
    high_ = degrees.back();
    if (low_ > high_)
      throw BadUse("a range whose low end lies above its high end",
                   "write [low, high]; a single number d means [-d, d]");
    if (const Numbers center = values.numbers("center"); center.size() == 2) {
      has_center_ = true;
      center_x_ = center[0];
      center_y_ = center[1];
    }
    values.fill(fill_);
  }

  Warp warp(Size input, Call& call) const {
    const double degrees = call.uniform(low_, high_);
    call.report("degrees", degrees);
    AffineParameters p;
    p.degrees = -degrees;
    const auto m = inverse_affine(p, has_center_ ? center_x_ : input.width * 0.5,
                                  has_center_ ? center_y_ : input.height * 0.5);
    Warp warp = Warp::identity(input);
    warp.set_map(m[0], m[1], m[2], m[3], m[4], m[5]);
    warp.set_interpolation(interpolation_);
    std::copy(fill_, fill_ + 4, warp.fill);
    return warp;
  }

 private:
  double low_, high_;
  bool has_center_ = false;
  double center_x_ = 0, center_y_ = 0;
  Interpolation interpolation_;
  std::uint8_t fill_[4];
};

}  // namespace

const millrace_unit kRandomRotation = kUnit<RandomRotation>;

}  // namespace millrace::augment
