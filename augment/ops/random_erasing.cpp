// random_erasing: covers a rectangle of random area, shape and position with probability p
// (torchvision's RandomErasing: same parameters, draws and number of attempts).
#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "augment/ops/builtin.h"
#include "augment/ops/noise.h"
#include "augment/ops/pixels.h"

namespace millrace::augment {
namespace {

class RandomErasing {
 public:
  static constexpr const char* kName = "random_erasing";
  static constexpr const char* kPython = "RandomErasing";
  static constexpr const char* kHelp =
      "cover a rectangle of random area, shape and place with probability p";
  static constexpr Parameter kParams[] = {
      p_param("0.5"),
      numbers("scale", "[0.02, 0.33]", lengths(2), 0, 1,
              "fraction of the image's area: [low, high]"),
      numbers("ratio", "[0.3, 3.3]", lengths(2), 1e-3, 1e3, "height over width: [low, high]"),
      integers("value", "[0]", lengths(1, 3), 0, 255,
               "level for mode=value: one for all channels, or one per channel"),
      choice("mode", "value", "value|mean|random",
             "value: the level `value`; mean: the level that output.mean turns into 0; random: "
             "noise that becomes Normal(0, 1)")};

  explicit RandomErasing(const Values& values) : p_(values.number("p")) {
    const Numbers scale = values.numbers("scale"), ratio = values.numbers("ratio");
    low_scale_ = scale[0];
    high_scale_ = scale[1];
    low_log_ratio_ = natural_log(ratio[0]);
    high_log_ratio_ = natural_log(ratio[1]);
    if (low_scale_ > high_scale_ || low_log_ratio_ > high_log_ratio_)
      throw BadUse("a range whose low end lies above its high end", "write [low, high]");
    const std::string_view mode = values.text("mode");
    const Numbers value = values.numbers("value"), mean = values.mean(), std = values.std();
    if (mode == "value")
      for (std::size_t c = 0; c < value.size(); ++c) float_fill_.push_back(value[c] / 255);
    else
      float_fill_.assign(mean.at, mean.at + mean.size());
    if (mode == "random") float_std_.assign(std.at, std.at + std.size());
    for (std::size_t c = 0; c < 3; ++c) {
      const double m = 255 * of(mean, c);
      fill_[c] = mode == "value"
                     ? static_cast<std::uint8_t>(of(value, c))
                     : static_cast<std::uint8_t>(std::clamp(round_half_even(m), 0.0, 255.0));
      if (mode == "random")
        noise_.emplace_back(m, 255 * of(std, c), LevelNoise::Rounding::nearest,
                            LevelNoise::Range::clip);
    }
  }

  void apply(Image image, Call& call) const {
    const std::optional<Rect> found = drawn({image.width, image.height}, call);
    if (!found) return;
    const Rect& rect = *found;
    const auto channels = static_cast<std::size_t>(image.channels);
    const std::size_t bytes = static_cast<std::size_t>(rect.x1 - rect.x0) * channels;
    BulkBits bits(call);
    for (int y = rect.y0; y < rect.y1; ++y) {
      std::uint8_t* row = image.data + y * image.row + rect.x0 * image.channels;
      if (noise_.empty())
        cover(row, bytes, channels);
      else
        cover_with_noise(row, bytes, channels, bits);
    }
  }

  void apply_floats(FloatImage image, Call& call) const {
    const std::optional<Rect> found = drawn({image.width, image.height}, call);
    if (!found) return;
    NormalDraws normal(call);
    const auto channels = static_cast<std::size_t>(image.channels);
    for (int y = found->y0; y < found->y1; ++y) {
      float* value = image.data + y * image.row + found->x0 * image.channels;
      for (int x = found->x0; x < found->x1; ++x)
        for (std::size_t c = 0; c < channels; ++c) {
          const double noise = float_std_.empty() ? 0 : of(float_std_, c) * normal.next();
          *value++ = static_cast<float>(of(float_fill_, c) + noise);
        }
    }
  }

 private:
  /// Draws whether a rectangle is covered, and reports which.
  std::optional<Rect> drawn(Size size, Call& call) const {
    if (!is_applied(call, p_)) return std::nullopt;
    const std::optional<Rect> found = place(size, call);
    if (!found) return found;
    call.report("x", found->x0);
    call.report("y", found->y0);
    call.report("width", found->x1 - found->x0);
    call.report("height", found->y1 - found->y0);
    return found;
  }

  static double of(const std::vector<double>& numbers, std::size_t c) {
    return numbers[c < numbers.size() ? c : 0];
  }
  static double of(const Numbers& numbers, std::size_t c) {
    return numbers[c < numbers.size() ? c : 0];
  }

  /// Makes ten attempts to find a rectangle smaller than the image; returns none if all fail.
  std::optional<Rect> place(Size image, Call& call) const {
    const double area = static_cast<double>(image.width) * image.height;
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double covered = area * call.uniform(low_scale_, high_scale_);
      const double ratio = exponential(call.uniform(low_log_ratio_, high_log_ratio_));
      const int height = static_cast<int>(round_half_even(std::sqrt(covered * ratio)));
      const int width = static_cast<int>(round_half_even(std::sqrt(covered / ratio)));
      if (height >= image.height || width >= image.width) continue;
      const int y =
          static_cast<int>(call.integer(static_cast<std::uint32_t>(image.height - height + 1)));
      const int x =
          static_cast<int>(call.integer(static_cast<std::uint32_t>(image.width - width + 1)));
      return Rect{x, y, x + width, y + height};
    }
    return std::nullopt;
  }

  void cover(std::uint8_t* row, std::size_t bytes, std::size_t channels) const {
    if (channels == 1 || (fill_[0] == fill_[1] && fill_[1] == fill_[2])) {
      std::fill_n(row, bytes, fill_[0]);
      return;
    }
    for (std::size_t i = 0; i < bytes; i += 3) std::copy_n(fill_, 3, row + i);
  }

  void cover_with_noise(std::uint8_t* row, std::size_t bytes, std::size_t channels,
                        BulkBits& bits) const {
    std::size_t count = 0, c = 0;
    for (std::size_t done = 0; done < bytes; done += count) {
      const std::uint32_t* words = bits.take(bytes - done, count);
      for (std::size_t i = 0; i < count; ++i) {
        const int level = LevelNoise::level(noise_[c].entries(), words[i]);
        row[done + i] = static_cast<std::uint8_t>(std::clamp(level, 0, 255));
        c = c + 1 == channels ? 0 : c + 1;
      }
    }
  }

  double p_, low_scale_, high_scale_, low_log_ratio_, high_log_ratio_;
  std::uint8_t fill_[3];
  std::vector<double> float_fill_, float_std_;  ///< one number, or one per channel
  std::vector<LevelNoise> noise_;               ///< per channel (mode=random)
};

}  // namespace

const Augmentation kRandomErasing = kAugmentation<RandomErasing>;

}  // namespace millrace::augment
