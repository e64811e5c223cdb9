// Random chains of two to five ops, as texts of recipes: mostly geometric ones, with every border
// and interpolation, some choices, and some ops that need pixels in between.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "augment/plan/plan.h"
#include "base/rng.h"
#include "plugins/host/registry.h"
#include "tests/augment/forced_level.h"

namespace millrace::test {

namespace random_chain_detail {

class Maker {
 public:
  Maker(Draw& draw, Size size) : draw_(draw), size_(size) {}

  /// Returns the next op's text, and tracks its effect on the image's size.
  std::string op() {
    switch (int_of(0, 15)) {
      case 0:
      case 1:
        return fmt::format(
            "random_affine{{degrees={},translate=[{},{}],scale=[{},{}],shear={},{}}}",
            int_of(0, 180), real(0, .4), real(0, .4), real(.3, 1), real(1, 2.5), int_of(0, 30),
            warp());
      case 2:
        return fmt::format("random_rotation{{degrees={},{}}}", int_of(0, 180), warp());
      case 3:
        return fmt::format("random_perspective{{distortion_scale={},p=1,{}}}", real(.1, 1), warp());
      case 4:
        return fmt::format("affine{{degrees={},translate=[{},{}],scale={},{}}}", int_of(-180, 180),
                           int_of(-20, 20), int_of(-20, 20), real(.3, 2.5), warp());
      case 5:
        return crop();
      case 6:
        return fmt::format("center_crop{{size={},{}}}", resized(4, 110), fill());
      case 7:
        return fmt::format("random_crop{{size={},padding={},pad_if_needed=true,{}}}",
                           resized(4, 110), int_of(0, 9), fill());
      case 8:
        return fmt::format("random_resized_crop{{size={},scale=[{},1],{}}}", resized(4, 70),
                           real(.05, .6), filter());
      case 9:
        return fmt::format("resize{{size={},{}}}", resized(4, 110), filter());
      case 10:
        return pad();
      case 11:
        return "hflip";
      case 12:
        return "vflip";
      case 13:
        return fmt::format("rand_augment{{num_ops={},magnitude={},{}}}", int_of(1, 3),
                           int_of(5, 30), warp());
      case 14:
        if (draw_.chance(.5)) return "trivial_augment{" + warp() + "}";
        return fmt::format("auto_augment{{policy={},{}}}", policy(), warp());
      default:
        return draw_.chance(.5) ? "invert" : "autocontrast{p=1}";
    }
  }

 private:
  int int_of(int low, int high) {  // both ends included
    return low + static_cast<int>(draw_.integer(static_cast<std::uint32_t>(high - low + 1)));
  }
  std::string real(double low, double high) {
    return fmt::format("{:.3f}", draw_.uniform(low, high));
  }
  std::string fill() { return fmt::format("fill={}", int_of(0, 255)); }
  const char* interpolation() { return draw_.chance(.5) ? "nearest" : "bilinear"; }
  const char* policy() {
    static constexpr const char* kPolicies[] = {"imagenet", "cifar10", "svhn"};
    return kPolicies[int_of(0, 2)];
  }
  std::string warp() { return fmt::format("interpolation={},{}", interpolation(), fill()); }
  std::string filter() {
    return fmt::format("interpolation={},antialias={}", interpolation(), draw_.chance(.5));
  }
  std::string resized(int low, int high) {
    size_ = {int_of(low, high), int_of(low, high)};
    return fmt::format("[{},{}]", size_.height, size_.width);
  }
  /// Returns a crop that may reach beyond the image.
  std::string crop() {
    const int left = int_of(-10, size_.width - 1), top = int_of(-10, size_.height - 1);
    const Size window{int_of(4, std::max(4, size_.width - left + 5)),
                      int_of(4, std::max(4, size_.height - top + 5))};
    size_ = window;
    return fmt::format("crop{{left={},top={},width={},height={},{}}}", left, top, window.width,
                       window.height, fill());
  }
  std::string pad() {
    static constexpr const char* kModes[] = {"constant", "edge", "reflect", "symmetric"};
    const int x = int_of(0, std::min(15, size_.width - 1));
    const int y = int_of(0, std::min(15, size_.height - 1));
    size_ = {size_.width + 2 * x, size_.height + 2 * y};
    return fmt::format("pad{{padding=[{},{}],padding_mode={},{}}}", x, y, kModes[int_of(0, 3)],
                       fill());
  }

  Draw& draw_;
  Size size_;
};

}  // namespace random_chain_detail

/// Returns the chain of this number for images of `size`; the same on every machine.
inline std::vector<std::string> random_chain(std::uint64_t number, Size size) {
  Draw draw(base::stream({31, 0, number}, base::op_id("random_chain")));
  random_chain_detail::Maker maker(draw, size);
  std::vector<std::string> ops(2 + draw.integer(4));
  for (std::string& op : ops) op = maker.op();
  return ops;
}

/// "random_affine{...} center_crop{...}"
inline std::string to_text(const std::vector<std::string>& ops) {
  return fmt::format("{}", fmt::join(ops, " "));
}

/// A compiled chain with the working memory of one thread.
class PlannedChain {
 public:
  PlannedChain(const std::vector<std::string>& ops, const Source& source,
               const OutputOptions& output, const PlanOptions& options)
      : plan_(specs_of(ops), source, output, options), scratch_(plan_.make_scratch()) {}

  /// Returns the sample's bytes from the kernels of one level.
  std::vector<std::uint8_t> run(std::uint64_t sample, PixelSource& source, base::Simd level) {
    const ForcedLevel forced(level);
    std::vector<std::uint8_t> out(plan_.output().bytes());
    plan_.run({11, 1, sample}, source, reinterpret_cast<std::byte*>(out.data()), *scratch_);
    return out;
  }

 private:
  static std::vector<OpSpec> specs_of(const std::vector<std::string>& ops) {
    Recipe recipe(op_declarations());
    for (const std::string& op : ops) recipe.set("augment+=" + op);
    return recipe.augment();
  }

  augment::Plan plan_;
  std::unique_ptr<Transform::Scratch> scratch_;
};

}  // namespace millrace::test
