// random_crop: pads, then cuts out a window of a fixed size at a random place (torchvision's
// RandomCrop with padding_mode="constant").
#include <algorithm>
#include <string>

#include "augment/builtin.h"

namespace millrace {
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
    const Numbers size = values.numbers("size");
    size_ = {static_cast<int>(size.back()), static_cast<int>(size.front())};
    const Numbers padding = values.numbers("padding");
    const auto pad = [&](std::size_t i) { return static_cast<int>(padding[i % padding.size()]); };
    left_ = pad(0);
    top_ = pad(1);
    right_ = pad(2);
    bottom_ = pad(3);
    pad_if_needed_ = values.boolean("pad_if_needed");
  }

  Size output(Size input) const {
    if (!pad_if_needed_ && (input.width + left_ + right_ < size_.width ||
                            input.height + top_ + bottom_ < size_.height))
      throw BadUse("an image of " + text(input) + " (padding " + std::to_string(left_) + ", " +
                       std::to_string(top_) + ", " + std::to_string(right_) + ", " +
                       std::to_string(bottom_) + ") has no window of " + text(size_),
                   "lower augment.random_crop.size, raise its padding, or set pad_if_needed=true");
    return size_;
  }

  Warp warp(Size input, Call& call) const {
    // Padding that pad_if_needed adds goes to both sides, as torchvision does.
    const int lack_x = std::max(0, size_.width - (input.width + left_ + right_));
    const int lack_y = std::max(0, size_.height - (input.height + top_ + bottom_));
    const int room_x = input.width + left_ + right_ + 2 * lack_x - size_.width;
    const int room_y = input.height + top_ + bottom_ + 2 * lack_y - size_.height;
    const int y = static_cast<int>(call.integer(static_cast<std::uint32_t>(room_y) + 1));
    const int x = static_cast<int>(call.integer(static_cast<std::uint32_t>(room_x) + 1));
    Warp warp = Warp::identity(input);
    warp.output = size_;
    warp.set_map(1, 0, x - left_ - lack_x, 0, 1, y - top_ - lack_y);
    std::copy(fill_, fill_ + 4, warp.fill);
    call.report("x", warp.map[2]);
    call.report("y", warp.map[5]);
    return warp;
  }

 private:
  static std::string text(Size size) {
    return std::to_string(size.width) + "x" + std::to_string(size.height);
  }

  Size size_;
  int left_, top_, right_, bottom_;
  bool pad_if_needed_;
  std::uint8_t fill_[4];
};

}  // namespace

const millrace_unit kRandomCrop = kUnit<RandomCrop>;

}  // namespace millrace
