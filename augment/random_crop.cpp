// random_crop: pads, then cuts out a window of a fixed size at a random place (torchvision's
// RandomCrop with padding_mode="constant").
#include <fmt/format.h>

#include <algorithm>

#include "augment/op.h"
#include "pipeline/error.h"

namespace millrace {
namespace {

class RandomCrop final : public GeometricOp {
 public:
  explicit RandomCrop(const Params& params) : fill_(to_fill(params.numbers("fill"))) {
    const auto& size = params.numbers("size");  // [side] or [height, width]
    size_ = {static_cast<int>(size.back()), static_cast<int>(size.front())};
    const auto& padding = params.numbers("padding");  // all | [x, y] | [left, top, right, bottom]
    const auto pad = [&](std::size_t i) { return static_cast<int>(padding[i % padding.size()]); };
    left_ = pad(0);
    top_ = pad(1);
    right_ = pad(2);
    bottom_ = pad(3);
    pad_if_needed_ = params.boolean("pad_if_needed");
  }

  Size output(Size input) const override {
    if (!pad_if_needed_ && (input.width + left_ + right_ < size_.width ||
                            input.height + top_ + bottom_ < size_.height))
      throw UsageError(
          fmt::format(
              "random_crop: an image of {}x{} (padding {}, {}, {}, {}) has no window of {}x{}",
              input.width, input.height, left_, top_, right_, bottom_, size_.width, size_.height),
          "lower augment.random_crop.size, raise its padding, or set pad_if_needed=true");
    return size_;
  }

  Warp plan(Size input, Draw& draw) const override {
    // Padding that pad_if_needed adds goes to both sides, as torchvision does.
    const int lack_x = std::max(0, size_.width - (input.width + left_ + right_));
    const int lack_y = std::max(0, size_.height - (input.height + top_ + bottom_));
    const int room_x = input.width + left_ + right_ + 2 * lack_x - size_.width;
    const int room_y = input.height + top_ + bottom_ + 2 * lack_y - size_.height;
    const int y = static_cast<int>(draw.integer(static_cast<std::uint32_t>(room_y) + 1));
    const int x = static_cast<int>(draw.integer(static_cast<std::uint32_t>(room_x) + 1));
    Warp warp = Warp::identity(input);
    warp.output = size_;
    warp.map[2] = x - left_ - lack_x;
    warp.map[5] = y - top_ - lack_y;
    warp.fill = fill_;
    return warp;
  }

 private:
  Size size_;
  int left_, top_, right_, bottom_;
  bool pad_if_needed_;
  Fill fill_;
};

}  // namespace

extern const OpType kRandomCrop;
const OpType kRandomCrop{
    {"random_crop",
     "pad, then cut out a window of `size` at a random place",
     true,
     {Param::whole_numbers("size", {32}, {1, 2}, 1, 65535, "pixels: a side, or [height, width]"),
      Param::whole_numbers("padding", {0}, {1, 2, 4}, 0, 65535,
                           "pixels: all sides, [x, y] or [left, top, right, bottom]"),
      Param::boolean("pad_if_needed", false, "pad images smaller than the window"),
      Param::whole_numbers("fill", {0}, {1, 3}, 0, 255,
                           "level of the padding, a channel or for all")}},
    [](const Params& params) -> std::unique_ptr<GeometricOp> {
      return std::make_unique<RandomCrop>(params);
    }};

}  // namespace millrace
