// affine: a fixed rotation, translation, scale and shear (torchvision's functional affine; positive
// angles turn clockwise). random_affine draws the amounts, and rand_augment uses this op.
#include <algorithm>

#include "augment/ops/builtin.h"
#include "augment/ops/random_affine.h"

namespace millrace::augment {
namespace {

class Affine {
 public:
  static constexpr const char* kName = "affine";
  static constexpr const char* kHelp = "rotate, translate, scale and shear by fixed amounts";
  static constexpr Parameter kParams[] = {
      number("degrees", "0", -360, 360, "angle, clockwise"),
      numbers("translate", "[0, 0]", lengths(2), -65535, 65535, "shift in pixels: [x, y]"),
      numbers("translate_part", "[0, 0]", lengths(2), -1, 1,
              "shift as a part of width and height, cut off to whole pixels: [x, y]"),
      number("scale", "1", 0.01, 100, "factor"),
      numbers("shear", "[0, 0]", lengths(2), -89, 89, "degrees: [x, y]"),
      choice("interpolation", "nearest", "nearest|bilinear", "how positions are read"),
      fill_param(),
      numbers("center", "[]", lengths(0, 2), -65535, 65535,
              "[x, y] in pixels from the upper left corner; []: the image's centre")};

  explicit Affine(const Values& values)
      : center_(values.numbers("center").size() == 2),
        center_x_(center_ ? values.numbers("center")[0] : 0),
        center_y_(center_ ? values.numbers("center")[1] : 0),
        part_x_(values.numbers("translate_part")[0]),
        part_y_(values.numbers("translate_part")[1]),
        interpolation_(values.interpolation()) {
    values.fill(fill_);
    const Numbers translate = values.numbers("translate"), shear = values.numbers("shear");
    fixed_ = {values.number("degrees"), translate[0], translate[1],
              values.number("scale"),   shear[0],     shear[1]};
  }

  Warp warp(Size input) const {
    AffineParameters p = fixed_;
    p.translate_x += whole(part_x_ * input.width);
    p.translate_y += whole(part_y_ * input.height);
    const auto m = inverse_affine(p, center_ ? center_x_ : input.width * 0.5,
                                  center_ ? center_y_ : input.height * 0.5);
    Warp warp = Warp::identity(input);
    warp.set_map(m[0], m[1], m[2], m[3], m[4], m[5]);
    std::copy(fill_, fill_ + 4, warp.fill);
    warp.set_interpolation(interpolation_);
    return warp;
  }

 private:
  /// Truncates to whole pixels; a value within rounding of a whole number counts as that number.
  static double whole(double pixels) {
    const double size = pixels < 0 ? -pixels : pixels;
    const auto cut = static_cast<double>(static_cast<std::int64_t>(size + 1e-6));
    return pixels < 0 ? -cut : cut;
  }

  AffineParameters fixed_;
  bool center_;
  double center_x_, center_y_, part_x_, part_y_;
  std::uint8_t fill_[4];
  Interpolation interpolation_;
};

}  // namespace

const millrace_unit kAffine = kUnit<Affine>;

}  // namespace millrace::augment
