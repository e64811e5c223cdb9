// Affine and perspective maps: what geometric augmentations share, random_affine and
// random_perspective.

#include "augment/ops/geometry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "augment/ops/builtin.h"
#include "augment/plan/fold.h"

namespace millrace::augment {

// Affine maps that several ops share.

std::string to_text(Size size) {
  return std::to_string(size.width) + "x" + std::to_string(size.height);
}

Size to_size(const Numbers& numbers) {
  return {static_cast<int>(numbers.back()), static_cast<int>(numbers.front())};
}

Sides to_sides(const Numbers& numbers) {
  const auto side = [&](std::size_t i) { return static_cast<int>(numbers[i % numbers.size()]); };
  return {side(0), side(1), side(2), side(3)};
}

Warp cropped(Size input, int x, int y, Size size, const std::uint8_t (&fill)[4]) {
  Warp warp = Warp::identity(input);
  warp.output = size;
  warp.set_map(1, 0, x, 0, 1, y);
  std::copy(fill, fill + 4, warp.fill);
  return warp;
}

Warp resized(Size input, double x, double y, double width, double height, Size output,
             Interpolation interpolation, bool antialias) {
  Warp warp = Warp::identity(input);
  warp.output = output;
  warp.set_map(width / output.width, 0, x, 0, height / output.height, y);
  // torchvision crops before it resizes, so taps see nothing outside the box.
  warp.window = {static_cast<int>(std::floor(x)), static_cast<int>(std::floor(y)),
                 static_cast<int>(std::ceil(x + width)), static_cast<int>(std::ceil(y + height))};
  warp.set_interpolation(interpolation);
  warp.set_border(Border::clamp);
  warp.antialias = antialias && interpolation == Interpolation::bilinear;
  return warp;
}

// random_affine: rotation, translation, scale and shear about the centre (torchvision's
// RandomAffine: same parameters, ranges, order of composition and rounding).

std::array<double, 6> inverse_affine(const AffineParameters& p, double cx, double cy) {
  // Forward linear part RSS = rotation(degrees) * shear_y * shear_x * scale:
  //   a = cos(r - sy) / cos(sy)    b = -a tan(sx) - sin(r)
  //   c = sin(r - sy) / cos(sy)    d = -c tan(sx) + cos(r)
  // Its determinant is scale^2, so the inverse is the adjugate over the scale.
  const SinCos r = sincos_degrees(p.degrees);
  const SinCos r_sy = p.shear_y == 0 ? r : sincos_degrees(p.degrees - p.shear_y);
  const SinCos sx = sincos_degrees(p.shear_x);
  const SinCos sy = sincos_degrees(p.shear_y);
  const double tan_sx = sx.sin / sx.cos;
  const double a = r_sy.cos / sy.cos;
  const double c = r_sy.sin / sy.cos;
  const double b = -a * tan_sx - r.sin;
  const double d = -c * tan_sx + r.cos;
  std::array<double, 6> m{d / p.scale, -b / p.scale, 0, -c / p.scale, a / p.scale, 0};
  m[2] = m[0] * (-cx - p.translate_x) + m[1] * (-cy - p.translate_y) + cx;
  m[5] = m[3] * (-cx - p.translate_x) + m[4] * (-cy - p.translate_y) + cy;
  return m;
}

namespace {

struct Range {
  double low = 0, high = 0;
};

/// Expands a single number d to [-d, d].
Range symmetric(const Numbers& values) {
  return values.size() == 1 ? Range{-values[0], values[0]} : Range{values[0], values[1]};
}

class RandomAffine {
 public:
  static constexpr const char* kName = "random_affine";
  static constexpr const char* kPython = "RandomAffine(degrees)";
  static constexpr const char* kHelp =
      "rotate, translate, scale and shear about the centre, each drawn uniformly";
  static constexpr Parameter kParams[] = {
      millrace::numbers("degrees", "[0]", lengths(1, 2), -360, 360,
                        "angle in degrees: d for [-d, d], or [low, high]"),
      millrace::numbers("translate", "[0]", lengths(1, 2), 0, 1,
                        "largest shift as a fraction of width and height: one for both, or [x, y]"),
      millrace::numbers("scale", "[1]", lengths(1, 2), 0.01, 100, "factor: one, or [low, high]"),
      millrace::numbers(
          "shear", "[0]", lengths(1, 2, 4), -89, 89,
          "degrees: s for x in [-s, s], [x low, x high] or [x low, x high, y low, y high]"),
      choice("interpolation", "nearest", "nearest|bilinear", "interpolation method"),
      fill_param(),
      millrace::numbers("center", "[]", lengths(0, 2), -65535, 65535,
                        "[x, y] in pixels from the top left corner; []: the image's centre")};

  explicit RandomAffine(const Values& values)
      : degrees_(symmetric(values.numbers("degrees"))), interpolation_(values.interpolation()) {
    values.fill(fill_);
    const Numbers translate = values.numbers("translate");
    translate_x_ = translate.front();
    translate_y_ = translate.back();
    const Numbers scale = values.numbers("scale");
    scale_ = {scale.front(), scale.back()};
    const Numbers shear = values.numbers("shear");
    shear_x_ = symmetric({shear.at, shear.size() == 1 ? 1u : 2u});
    if (shear.size() == 4) shear_y_ = {shear[2], shear[3]};
    if (const Numbers center = values.numbers("center"); center.size() == 2) {
      has_center_ = true;
      center_x_ = center[0];
      center_y_ = center[1];
    }
    if (degrees_.low > degrees_.high || scale_.low > scale_.high || shear_x_.low > shear_x_.high ||
        shear_y_.low > shear_y_.high)
      throw BadUse("a range whose low end lies above its high end",
                   "write [low, high]; a single number d of degrees or shear means [-d, d]");
  }

  Warp warp(Size input, Call& call) const {
    AffineParameters p;
    p.degrees = call.uniform(degrees_.low, degrees_.high);
    const double max_x = translate_x_ * input.width;
    const double max_y = translate_y_ * input.height;
    p.translate_x = round_half_even(call.uniform(-max_x, max_x));
    p.translate_y = round_half_even(call.uniform(-max_y, max_y));
    p.scale = call.uniform(scale_.low, scale_.high);
    p.shear_x = call.uniform(shear_x_.low, shear_x_.high);
    p.shear_y = call.uniform(shear_y_.low, shear_y_.high);
    call.report("degrees", p.degrees);
    call.report("translate_x", p.translate_x);
    call.report("translate_y", p.translate_y);
    call.report("scale", p.scale);
    call.report("shear_x", p.shear_x);
    call.report("shear_y", p.shear_y);
    const auto m = inverse_affine(p, has_center_ ? center_x_ : input.width * 0.5,
                                  has_center_ ? center_y_ : input.height * 0.5);
    Warp warp = Warp::identity(input);
    warp.set_map(m[0], m[1], m[2], m[3], m[4], m[5]);
    for (int c = 0; c < 4; ++c) warp.fill[c] = fill_[c];
    warp.set_interpolation(interpolation_);
    return warp;
  }

 private:
  Range degrees_, scale_, shear_x_, shear_y_;
  double translate_x_ = 0, translate_y_ = 0;
  bool has_center_ = false;
  double center_x_ = 0, center_y_ = 0;
  std::uint8_t fill_[4];
  Interpolation interpolation_;
};

}  // namespace

const Augmentation kRandomAffine = kAugmentation<RandomAffine>;

// affine: a fixed rotation, translation, scale and shear (torchvision's functional affine; positive
// angles turn clockwise). random_affine draws the amounts, and rand_augment uses this op.
namespace {

class Affine {
 public:
  static constexpr const char* kName = "affine";
  static constexpr const char* kPython = "Affine";
  static constexpr const char* kHelp = "rotate, translate, scale and shear by fixed amounts";
  static constexpr Parameter kParams[] = {
      number("degrees", "0", -360, 360, "angle in degrees, clockwise"),
      numbers("translate", "[0, 0]", lengths(2), -65535, 65535, "shift in pixels: [x, y]"),
      numbers("translate_part", "[0, 0]", lengths(2), -1, 1,
              "shift as a fraction of width and height, truncated to whole pixels: [x, y]"),
      number("scale", "1", 0.01, 100, "factor"),
      numbers("shear", "[0, 0]", lengths(2), -89, 89, "degrees: [x, y]"),
      choice("interpolation", "nearest", "nearest|bilinear", "interpolation method"),
      fill_param(),
      numbers("center", "[]", lengths(0, 2), -65535, 65535,
              "[x, y] in pixels from the top left corner; []: the image's centre")};

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

const Augmentation kAffine = kAugmentation<Affine>;

// random_rotation: rotates about the centre, counter-clockwise (torchvision's RandomRotation
// without expand, because all samples of a batch have one size).
namespace {

class RandomRotation {
 public:
  static constexpr const char* kName = "random_rotation";
  static constexpr const char* kPython = "RandomRotation(degrees, interpolation=, fill=)";
  static constexpr const char* kHelp = "rotate counter-clockwise by an angle drawn uniformly";
  static constexpr Parameter kParams[] = {
      millrace::numbers("degrees", "[0]", lengths(1, 2), -360, 360,
                        "angle in degrees: d for [-d, d], or [low, high]"),
      choice("interpolation", "nearest", "nearest|bilinear", "interpolation method"),
      millrace::numbers("center", "[]", lengths(0, 2), -65535, 65535,
                        "[x, y] in pixels from the top left corner; []: the image's centre"),
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

const Augmentation kRandomRotation = kAugmentation<RandomRotation>;

// random_perspective: moves the four corners inwards, each by a random amount (torchvision's
// RandomPerspective).

std::array<double, 9> perspective_map(const Corners& from, const Corners& to) {
  // Maps `to` to `from`: u (g x + h y + 1) = a x + b y + c, and v alike; eight equations with eight
  // unknowns.
  double m[8][9] = {};
  for (int i = 0; i < 4; ++i) {
    const auto [x, y] = to[static_cast<std::size_t>(i)];
    const auto [u, v] = from[static_cast<std::size_t>(i)];
    const double row_u[9] = {x, y, 1, 0, 0, 0, -u * x, -u * y, u};
    const double row_v[9] = {0, 0, 0, x, y, 1, -v * x, -v * y, v};
    std::copy(row_u, row_u + 9, m[2 * i]);
    std::copy(row_v, row_v + 9, m[2 * i + 1]);
  }
  for (int column = 0; column < 8; ++column) {  // Gauss-Jordan elimination with pivots
    int pivot = column;
    for (int row = column; row < 8; ++row)
      if (std::abs(m[row][column]) > std::abs(m[pivot][column])) pivot = row;
    // Corners on one line.
    if (std::abs(m[pivot][column]) < 1e-12) return {1, 0, 0, 0, 1, 0, 0, 0, 1};
    std::swap_ranges(m[pivot], m[pivot] + 9, m[column]);
    for (int row = 0; row < 8; ++row) {
      if (row == column) continue;
      const double factor = m[row][column] / m[column][column];
      for (int k = column; k < 9; ++k) m[row][k] -= factor * m[column][k];
    }
  }
  std::array<double, 9> map{};
  for (std::size_t i = 0; i < 8; ++i) map[i] = m[i][8] / m[i][i];
  map[8] = 1;
  return map;
}

namespace {

class RandomPerspective {
 public:
  static constexpr const char* kName = "random_perspective";
  static constexpr const char* kPython = "RandomPerspective";
  static constexpr const char* kHelp = "move the corners inwards at random, with probability p";
  static constexpr Parameter kParams[] = {
      number("distortion_scale", "0.5", 0, 1,
             "largest shift of a corner, as a fraction of half a side"),
      number("p", "0.5", 0, 1, "probability"),
      choice("interpolation", "bilinear", "nearest|bilinear", "interpolation method"),
      fill_param()};

  explicit RandomPerspective(const Values& values)
      : distortion_(values.number("distortion_scale")),
        p_(values.number("p")),
        interpolation_(values.interpolation()) {
    values.fill(fill_);
  }

  Warp warp(Size input, Call& call) const {
    Warp warp = Warp::identity(input);
    const bool distorted = call.chance(p_);
    call.report("distorted", distorted);
    if (!distorted) return warp;
    const int w = input.width;
    const int h = input.height;
    const auto shift = [&](int side) {
      const int half = side / 2;  // rounded down, as torchvision does
      return static_cast<int>(call.integer(static_cast<std::uint32_t>(distortion_ * half) + 1));
    };
    // Clockwise from the upper left; x before y.
    Corners to;
    to[0].first = shift(w), to[0].second = shift(h);
    to[1].first = w - 1 - shift(w), to[1].second = shift(h);
    to[2].first = w - 1 - shift(w), to[2].second = h - 1 - shift(h);
    to[3].first = shift(w), to[3].second = h - 1 - shift(h);
    const Corners from{{{0, 0}, {w - 1, 0}, {w - 1, h - 1}, {0, h - 1}}};
    const auto map = perspective_map(from, to);
    std::copy(map.begin(), map.end(), warp.map);
    warp.set_interpolation(interpolation_);
    std::copy(fill_, fill_ + 4, warp.fill);
    return warp;
  }

 private:
  double distortion_, p_;
  Interpolation interpolation_;
  std::uint8_t fill_[4];
};

}  // namespace

const Augmentation kRandomPerspective = kAugmentation<RandomPerspective>;

}  // namespace millrace::augment
