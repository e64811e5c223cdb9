// sharpness: moves levels away from or towards a smoothed image, with 3x3 weights of 1 around a 5
// (torchvision's RandomAdjustSharpness on 8-bit tensors: same levels). The outermost pixels stay.
#include <cstring>

#include "augment/ops/builtin.h"
#include "augment/ops/pixels.h"
#include "augment/ops/probability.h"

namespace millrace::augment {
namespace {

/// Sharpens the inner pixels of a row, `step` bytes each, from the original rows above, at and
/// below it.
void sharpen(const std::uint8_t* above, const std::uint8_t* at, const std::uint8_t* below,
             std::ptrdiff_t step, std::size_t bytes, float rest, std::uint8_t* out) {
  dispatch_simd(
      [](const std::uint8_t* __restrict up, const std::uint8_t* __restrict mid,
         const std::uint8_t* __restrict down, std::ptrdiff_t s, std::ptrdiff_t n, float part,
         std::uint8_t* __restrict to) MILLRACE_SIMD_BODY {
        for (std::ptrdiff_t i = s; i < n - s; ++i) {
          const int sum = up[i - s] + up[i] + up[i + s] + mid[i - s] + 5 * mid[i] + mid[i + s] +
                          down[i - s] + down[i] + down[i + s];
          const int smooth = (sum + 6) / 13;  // rounds to nearest: thirteenths are never halves
          float value = fused(static_cast<float>(smooth - mid[i]), part, mid[i]);
          value = value > 0 ? value : 0;
          value = value < 255 ? value : 255;
          to[i] = static_cast<std::uint8_t>(static_cast<int>(value));
        }
      },
      above, at, below, step, static_cast<std::ptrdiff_t>(bytes), rest, out);
}

struct Sharpness {
  static constexpr const char* kName = "sharpness";
  static constexpr const char* kHelp = "sharpen or smooth by a factor, with probability p";
  static constexpr Parameter kParams[] = {
      number("sharpness_factor", "2", 0, 1000, "0: smoothed, 1: unchanged, 2: twice as sharp"),
      p_param("0.5")};
  static constexpr Reach kReach{MILLRACE_HALO, 1};

  explicit Sharpness(const Values& values)
      : rest(static_cast<float>(1.0 - values.number("sharpness_factor"))), p(values.number("p")) {}

  /// Returns the size of two original rows.
  std::size_t scratch(Size size, int channels) const {
    return 2 * static_cast<std::size_t>(size.width) * static_cast<std::size_t>(channels);
  }

  void apply(Image image, Call& call) const {
    if (!is_applied(call, p) || image.width <= 2 || image.height <= 2) return;
    const std::size_t bytes = row_bytes(image);
    std::uint8_t* above = call.scratch();
    std::uint8_t* at = above + bytes;
    std::memcpy(above, image.data, bytes);
    for (int y = 1; y + 1 < image.height; ++y) {
      std::uint8_t* row = image.data + y * image.row;
      std::memcpy(at, row, bytes);
      sharpen(above, at, row + image.row, image.channels, bytes, rest, row);
      std::swap(above, at);
    }
  }

  float rest;
  double p;
};

}  // namespace

const millrace_unit kSharpness = kUnit<Sharpness>;

}  // namespace millrace::augment
