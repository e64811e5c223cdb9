// What a geometric augmentation decides for one sample: where each output pixel comes from. No
// pixel is touched until the whole chain has been folded into one warp (fold.h).
#pragma once

#include <array>

#include "augment/pass.h"

namespace millrace {

/// Continuous coordinates: pixel i covers [i, i+1), its centre is i + 0.5 (PIL, torchvision and
/// OpenCV's resize agree on that).
struct Warp {
  /// Output to input, row major and homogeneous: u = (m0 x + m1 y + m2) / (m6 x + m7 y + m8), ...
  std::array<double, 9> map{1, 0, 0, 0, 1, 0, 0, 0, 1};
  Size output;
  Rect window;  ///< part of the input that may be seen; positions outside show `fill`
  Fill fill{};
  Filter filter = Filter::none;

  /// The whole input, moved nowhere.
  static Warp identity(Size input) {
    Warp warp;
    warp.output = input;
    warp.window = {0, 0, input.width, input.height};
    return warp;
  }
};

}  // namespace millrace
