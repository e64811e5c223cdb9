// random_crop: pads, then cuts out a window of fixed size at a random position (torchvision's
// RandomCrop with padding_mode="constant").
#include <algorithm>
#include <string>

#include "augment/ops/builtin.h"
#include "augment/ops/geometry.h"

namespace millrace::augment {
namespace {

class RandomCrop {
 public:
  static constexpr const char* kName = "random_crop";
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

const millrace_unit kRandomCrop = kUnit<RandomCrop>;

}  // namespace millrace::augment
