// Augmentations that change the size: crop, center_crop, pad, resize and random_resized_crop.

#include <algorithm>
#include <cmath>
#include <string>

#include "augment/ops/builtin.h"
#include "augment/ops/geometry.h"

namespace millrace::augment {

// crop, center_crop and pad: windows at fixed positions (torchvision's functional.crop, CenterCrop
// and Pad).

namespace {

class Crop {
 public:
  static constexpr const char* kName = "crop";
  static constexpr const char* kPython = "Crop(top, left, height, width)";
  static constexpr const char* kHelp = "cut out a window at a fixed place";
  static constexpr Parameter kParams[] = {
      integer("top", "0", -65535, 65535, "pixels from the upper edge; negative: pad"),
      integer("left", "0", -65535, 65535, "pixels from the left edge; negative: pad"),
      integer("height", "32", 1, 65535, "of the window, in pixels"),
      integer("width", "32", 1, 65535, "of the window, in pixels"), fill_param()};

  explicit Crop(const Values& values)
      : x_(static_cast<int>(values.integer("left"))),
        y_(static_cast<int>(values.integer("top"))),
        size_{static_cast<int>(values.integer("width")),
              static_cast<int>(values.integer("height"))} {
    values.fill(fill_);
  }
  Size output(Size) const { return size_; }
  Warp warp(Size input) const { return cropped(input, x_, y_, size_, fill_); }

 private:
  int x_, y_;
  Size size_;
  std::uint8_t fill_[4];
};

class CenterCrop {
 public:
  static constexpr const char* kName = "center_crop";
  static constexpr const char* kPython = "CenterCrop(size)";
  static constexpr const char* kHelp = "cut out the middle; smaller images are padded";
  static constexpr Parameter kParams[] = {
      integers("size", "[224]", lengths(1, 2), 1, 65535, "pixels: a side, or [height, width]"),
      fill_param()};

  explicit CenterCrop(const Values& values) : size_(to_size(values.numbers("size"))) {
    values.fill(fill_);
  }
  Size output(Size) const { return size_; }
  Warp warp(Size input) const {
    return cropped(input, start(input.width, size_.width), start(input.height, size_.height), size_,
                   fill_);
  }

 private:
  /// Returns where the window starts. If the image is smaller, the odd pixel of padding goes behind
  /// it; if it is larger, half a pixel is rounded to even.
  static int start(int have, int want) {
    if (have < want) return -((want - have) / 2);
    return static_cast<int>(round_half_even((have - want) / 2.0));
  }
  Size size_;
  std::uint8_t fill_[4];
};

class Pad {
 public:
  static constexpr const char* kName = "pad";
  static constexpr const char* kPython = "Pad(padding, fill=)";
  static constexpr const char* kHelp = "add pixels around the image";
  static constexpr Parameter kParams[] = {
      integers("padding", "[0]", lengths(1, 2, 4), 0, 65535,
               "pixels: all sides, [x, y] or [left, top, right, bottom]"),
      choice("padding_mode", "constant", "constant|edge|reflect|symmetric",
             "constant: fill; edge: the outermost pixel; reflect, symmetric: mirrored without, "
             "with the outermost pixel twice"),
      fill_param()};

  explicit Pad(const Values& values)
      : sides_(to_sides(values.numbers("padding"))), mode_(values.text("padding_mode")) {
    values.fill(fill_);
  }
  Size output(Size input) const {
    const int most = std::max(std::max(sides_.left, sides_.right) - input.width,
                              std::max(sides_.top, sides_.bottom) - input.height);
    if ((mode_ == "reflect" && most >= 0) || (mode_ == "symmetric" && most > 0))
      throw BadUse("an image of " + to_text(input) + " is too small to mirror that much of it",
                   "lower augment.pad.padding, or set padding_mode=edge");
    return {input.width + sides_.left + sides_.right, input.height + sides_.top + sides_.bottom};
  }
  Warp warp(Size input) const {
    Warp warp = cropped(input, -sides_.left, -sides_.top, output(input), fill_);
    warp.set_border(mode_ == "edge"        ? Border::clamp
                    : mode_ == "reflect"   ? Border::reflect
                    : mode_ == "symmetric" ? Border::symmetric
                                           : Border::constant);
    return warp;
  }

 private:
  Sides sides_;
  std::string mode_;
  std::uint8_t fill_[4];
};

}  // namespace

const Augmentation kCrop = kAugmentation<Crop>;
const Augmentation kCenterCrop = kAugmentation<CenterCrop>;
const Augmentation kPad = kAugmentation<Pad>;

// random_crop: pads, then cuts out a window of fixed size at a random position (torchvision's
// RandomCrop with padding_mode="constant").
namespace {

class RandomCrop {
 public:
  static constexpr const char* kName = "random_crop";
  static constexpr const char* kPython = "RandomCrop(size)";
  static constexpr const char* kHelp = "pad, then cut out a window of `size` at a random place";
  static constexpr Parameter kParams[] = {
      integers("size", "[32]", lengths(1, 2), 1, 65535, "pixels: a side, or [height, width]"),
      integers("padding", "[0]", lengths(1, 2, 4), 0, 65535,
               "pixels: all sides, [x, y] or [left, top, right, bottom]"),
      boolean("pad_if_needed", "false", "pad images smaller than the window"), fill_param()};

  explicit RandomCrop(const Values& values) {
    values.fill(fill_);
    size_ = to_size(values.numbers("size"));
    padding_ = to_sides(values.numbers("padding"));
    pad_if_needed_ = values.boolean("pad_if_needed");
  }

  Size output(Size input) const {
    if (!pad_if_needed_ && (input.width + padding_.left + padding_.right < size_.width ||
                            input.height + padding_.top + padding_.bottom < size_.height))
      throw BadUse("an image of " + to_text(input) + " (padding " + std::to_string(padding_.left) +
                       ", " + std::to_string(padding_.top) + ", " + std::to_string(padding_.right) +
                       ", " + std::to_string(padding_.bottom) + ") has no window of " +
                       to_text(size_),
                   "lower augment.random_crop.size, raise its padding, or set pad_if_needed=true");
    return size_;
  }

  Warp warp(Size input, Call& call) const {
    // pad_if_needed pads both sides, as in torchvision.
    const int lack_x = std::max(0, size_.width - (input.width + padding_.left + padding_.right));
    const int lack_y = std::max(0, size_.height - (input.height + padding_.top + padding_.bottom));
    const int room_x = input.width + padding_.left + padding_.right + 2 * lack_x - size_.width;
    const int room_y = input.height + padding_.top + padding_.bottom + 2 * lack_y - size_.height;
    const int y = static_cast<int>(call.integer(static_cast<std::uint32_t>(room_y) + 1));
    const int x = static_cast<int>(call.integer(static_cast<std::uint32_t>(room_x) + 1));
    const Warp warp =
        cropped(input, x - padding_.left - lack_x, y - padding_.top - lack_y, size_, fill_);
    call.report("x", warp.map[2]);
    call.report("y", warp.map[5]);
    return warp;
  }

 private:
  Size size_;
  Sides padding_;
  bool pad_if_needed_;
  std::uint8_t fill_[4];
};

}  // namespace

const Augmentation kRandomCrop = kAugmentation<RandomCrop>;

// resize and random_resized_crop (torchvision's Resize and RandomResizedCrop). `nearest` takes the
// pixel under the position, which torchvision calls NEAREST_EXACT.

namespace {

constexpr Parameter kResizeInterpolation =
    choice("interpolation", "bilinear", "nearest|bilinear", "interpolation method");
constexpr Parameter kAntialias =
    boolean("antialias", "true", "bilinear: widen the filter where the image shrinks");

class Resize {
 public:
  static constexpr const char* kName = "resize";
  static constexpr const char* kPython = "Resize(size, interpolation=)";
  static constexpr const char* kHelp = "stretch to a size, or until the shorter side has it";
  static constexpr Parameter kParams[] = {
      integers("size", "[256]", lengths(1, 2), 1, 65535,
               "pixels: [height, width], or one number for the shorter side"),
      integer("max_size", "0", 0, 65535,
              "with one number as size: limit for the longer side; 0: none"),
      kResizeInterpolation, kAntialias};

  explicit Resize(const Values& values)
      : count_(values.numbers("size").size()),
        size_(to_size(values.numbers("size"))),
        max_(static_cast<int>(values.integer("max_size"))),
        interpolation_(values.interpolation()),
        antialias_(values.boolean("antialias")) {
    if (max_ > 0 && (count_ == 2 || max_ <= size_.width))
      throw BadUse("max_size goes with one number in size, and is larger than it",
                   "leave max_size out, or set size=[N] with N below it");
  }
  Size output(Size input) const {
    if (count_ == 2) return size_;
    const bool wide = input.width > input.height;
    int small = size_.width;
    int large =
        static_cast<int>(static_cast<std::int64_t>(small) * std::max(input.width, input.height) /
                         std::min(input.width, input.height));
    if (max_ > 0 && large > max_) {
      small = std::max(1, static_cast<int>(static_cast<std::int64_t>(max_) * small / large));
      large = max_;
    }
    return wide ? Size{large, small} : Size{small, large};
  }
  Warp warp(Size input) const {
    return resized(input, 0, 0, input.width, input.height, output(input), interpolation_,
                   antialias_);
  }

 private:
  std::size_t count_;
  Size size_;
  int max_;
  Interpolation interpolation_;
  bool antialias_;
};

class RandomResizedCrop {
 public:
  static constexpr const char* kName = "random_resized_crop";
  static constexpr const char* kPython = "RandomResizedCrop(size)";
  static constexpr const char* kHelp =
      "cut out a window of random area and aspect ratio, and stretch it to `size`";
  static constexpr Parameter kParams[] = {
      integers("size", "[224]", lengths(1, 2), 1, 65535, "pixels: a side, or [height, width]"),
      millrace::numbers("scale", "[0.08, 1]", lengths(2), 1e-6, 1,
                        "[low, high]: fraction of the image's area"),
      millrace::numbers("ratio", "[0.75, 1.3333333333333333]", lengths(2), 1e-3, 1e3,
                        "[low, high]: width over height, drawn uniformly in its logarithm"),
      kResizeInterpolation, kAntialias};

  explicit RandomResizedCrop(const Values& values)
      : size_(to_size(values.numbers("size"))),
        scale_(values.numbers("scale")[0]),
        max_scale_(values.numbers("scale")[1]),
        ratio_(values.numbers("ratio")[0]),
        max_ratio_(values.numbers("ratio")[1]),
        log_ratio_(natural_log(ratio_)),
        max_log_ratio_(natural_log(max_ratio_)),
        interpolation_(values.interpolation()),
        antialias_(values.boolean("antialias")) {
    if (scale_ > max_scale_ || ratio_ > max_ratio_)
      throw BadUse("a range whose low end lies above its high end", "write [low, high]");
  }
  Size output(Size) const { return size_; }
  Warp warp(Size input, Call& call) const {
    const Rect box = window(input, call);
    call.report("left", box.x0);
    call.report("top", box.y0);
    call.report("width", box.x1 - box.x0);
    call.report("height", box.y1 - box.y0);
    return resized(input, box.x0, box.y0, box.x1 - box.x0, box.y1 - box.y0, size_, interpolation_,
                   antialias_);
  }

 private:
  /// Draws a window in ten attempts; falls back to the largest centred window with an allowed
  /// ratio. Uses std::sqrt, which IEEE 754 makes equal on all machines (determinism contract).
  Rect window(Size input, Call& call) const {
    const double area = static_cast<double>(input.width) * input.height;
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double target = area * call.uniform(scale_, max_scale_);
      const double aspect = exponential(call.uniform(log_ratio_, max_log_ratio_));
      const auto w = static_cast<int>(round_half_even(std::sqrt(target * aspect)));
      const auto h = static_cast<int>(round_half_even(std::sqrt(target / aspect)));
      if (w < 1 || h < 1 || w > input.width || h > input.height) continue;
      const int y =
          static_cast<int>(call.integer(static_cast<std::uint32_t>(input.height - h + 1)));
      const int x = static_cast<int>(call.integer(static_cast<std::uint32_t>(input.width - w + 1)));
      return {x, y, x + w, y + h};
    }
    const double ratio = static_cast<double>(input.width) / input.height;
    int w = input.width;
    int h = input.height;
    if (ratio < ratio_) h = static_cast<int>(round_half_even(w / ratio_));
    if (ratio > max_ratio_) w = static_cast<int>(round_half_even(h * max_ratio_));
    h = std::clamp(h, 1, input.height);
    w = std::clamp(w, 1, input.width);
    const int x = (input.width - w) / 2;
    const int y = (input.height - h) / 2;
    return {x, y, x + w, y + h};
  }

  Size size_;
  double scale_, max_scale_, ratio_, max_ratio_, log_ratio_, max_log_ratio_;
  Interpolation interpolation_;
  bool antialias_;
};

}  // namespace

const Augmentation kResize = kAugmentation<Resize>;
const Augmentation kRandomResizedCrop = kAugmentation<RandomResizedCrop>;

}  // namespace millrace::augment
