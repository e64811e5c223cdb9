// Affine maps that several ops share.
#include "augment/ops/geometry.h"

#include <algorithm>
#include <cmath>

namespace millrace::augment {

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

}  // namespace millrace::augment
