// gaussian_noise: adds an independent normal deviate to each channel of each pixel (torchvision's
// GaussianNoise on 8-bit tensors: noise is truncated to whole levels).
#include <algorithm>

#include "augment/ops/builtin.h"
#include "augment/ops/bulk_bits.h"
#include "augment/ops/level_noise.h"
#include "augment/ops/pixels.h"

namespace millrace::augment {
namespace {

class GaussianNoise {
 public:
  static constexpr const char* kName = "gaussian_noise";
  static constexpr const char* kHelp = "add normally distributed noise to every level";
  static constexpr Parameter kParams[] = {
      number("mean", "0", -1, 1, "part of full scale (255 levels)"),
      number("sigma", "0.1", 0, 10, "standard deviation, part of full scale"),
      boolean("clip", "true", "keep results in 0..255; otherwise they wrap around")};

  explicit GaussianNoise(const Values& values)
      : clip_(values.boolean("clip")),
        noise_(255 * values.number("mean"), 255 * values.number("sigma"),
               LevelNoise::Rounding::toward_zero,
               clip_ ? LevelNoise::Range::clip : LevelNoise::Range::wrap) {}

  void apply(Image image, Call& call) const {
    BulkBits bits(call);
    each_row(image, [&](std::uint8_t* row, std::size_t bytes) {
      std::size_t count = 0;
      for (std::size_t done = 0; done < bytes; done += count) {
        const std::uint32_t* words = bits.take(bytes - done, count);
        wide(
            [](std::uint8_t* __restrict levels, const std::uint32_t* __restrict random,
               std::size_t n, const std::uint32_t* __restrict entries, int most) MILLRACE_WIDE {
              for (std::size_t i = 0; i < n; ++i) {
                int level = levels[i] + LevelNoise::level(entries, random[i]);
                level = level > 0 ? level : 0;
                level = level < most ? level : most;
                levels[i] = static_cast<std::uint8_t>(level);
              }
            },
            row + done, words, count, noise_.entries(),
            clip_ ? 255 : 511);  // noise wraps in 0..255
      }
    });
  }

 private:
  bool clip_;
  LevelNoise noise_;
};

}  // namespace

const millrace_unit kGaussianNoise = kUnit<GaussianNoise>;

}  // namespace millrace::augment
