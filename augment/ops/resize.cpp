// resize and random_resized_crop (torchvision's Resize and RandomResizedCrop). `nearest` takes the
// pixel under the position, which torchvision calls NEAREST_EXACT.
#include <algorithm>
#include <cmath>

#include "augment/ops/builtin.h"
#include "augment/ops/geometry.h"

namespace millrace::augment {
namespace {

constexpr Parameter kInterpolation =
    choice("interpolation", "bilinear", "nearest|bilinear", "how levels between pixels are read");
constexpr Parameter kAntialias =
    boolean("antialias", "true", "bilinear: widen the filter where the image shrinks");

class Resize {
 public:
  static constexpr const char* kName = "resize";
  static constexpr const char* kHelp = "stretch to a size, or until the shorter side has it";
  static constexpr Parameter kParams[] = {
      integers("size", "[256]", lengths(1, 2), 1, 65535,
               "pixels: [height, width], or one number for the shorter side"),
      integer("max_size", "0", 0, 65535, "with one number: most for the longer side; 0: no limit"),
      kInterpolation, kAntialias};

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
  static constexpr const char* kHelp =
      "cut out a window of random area and aspect ratio, and stretch it to `size`";
  static constexpr Parameter kParams[] = {
      integers("size", "[224]", lengths(1, 2), 1, 65535, "pixels: a side, or [height, width]"),
      millrace::numbers("scale", "[0.08, 1]", lengths(2), 1e-6, 1,
                        "[low, high]: part of the image's area"),
      millrace::numbers("ratio", "[0.75, 1.3333333333333333]", lengths(2), 1e-3, 1e3,
                        "[low, high]: width over height, drawn uniformly in its logarithm"),
      kInterpolation, kAntialias};

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

const millrace_unit kResize = kUnit<Resize>;
const millrace_unit kRandomResizedCrop = kUnit<RandomResizedCrop>;

}  // namespace millrace::augment
