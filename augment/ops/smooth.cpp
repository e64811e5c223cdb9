// Separable smoothing of 8-bit images.

#include <cstring>

#include "augment/ops/builtin.h"
#include "augment/ops/pixels.h"
#include "augment/plan/dispatch_simd.h"

namespace millrace::augment {
namespace {

/// Adding 1.5 * 2^23 shifts the fraction out of the mantissa: rounds to nearest, halves to even.
constexpr float kRound = 12582912.0f;

constexpr std::size_t aligned(std::size_t floats) { return (floats + 15) / 16 * 16; }

/// Number of elements that stay in a register, anywhere in a row.
constexpr std::ptrdiff_t kVector = 8;
using Vector [[gnu::vector_size(kVector * sizeof(float)), gnu::aligned(4), gnu::may_alias]] = float;

/// Computes out[i] = w0 middle[i] + sum over j of w_j (before(j)[i] + behind(j)[i]).
template <class Before, class Behind>
MILLRACE_SIMD_BODY inline void add_up(const float* middle, const Before& before,
                                      const Behind& behind, const float* weights, int radius,
                                      std::ptrdiff_t count, float* out) {
  std::ptrdiff_t i = 0;
  for (; i + kVector <= count; i += kVector) {
    Vector sum = *reinterpret_cast<const Vector*>(middle + i) * weights[0];
    for (int j = 1; j <= radius; ++j)
      sum += (*reinterpret_cast<const Vector*>(before(j) + i) +
              *reinterpret_cast<const Vector*>(behind(j) + i)) *
             weights[j];
    *reinterpret_cast<Vector*>(out + i) = sum;
  }
  for (; i < count; ++i) {
    float sum = middle[i] * weights[0];
    for (int j = 1; j <= radius; ++j) sum += (before(j)[i] + behind(j)[i]) * weights[j];
    out[i] = sum;
  }
}

/// Smooths along a row whose ends are mirrored.
void smooth_row(const float* in, const SmoothingWeights& weights, std::ptrdiff_t step,
                std::size_t count, float* out) {
  dispatch_simd(
      [](const float* from, const float* w, int radius, std::ptrdiff_t by, std::ptrdiff_t n,
         float* to) MILLRACE_SIMD_BODY {
        add_up(
            from, [&](int j) MILLRACE_SIMD_BODY { return from - j * by; },
            [&](int j) MILLRACE_SIMD_BODY { return from + j * by; }, w, radius, n, to);
      },
      in, weights.at, weights.radius, step, static_cast<std::ptrdiff_t>(count), out);
}

/// Smooths across rows; rows[radius] is the middle one.
void smooth_column(const float* const* rows, const SmoothingWeights& weights, std::size_t count,
                   float* out) {
  dispatch_simd(
      [](const float* const* from, const float* w, int radius, std::ptrdiff_t n, float* to)
          MILLRACE_SIMD_BODY {
            add_up(
                from[radius], [&](int j) MILLRACE_SIMD_BODY { return from[radius - j]; },
                [&](int j) MILLRACE_SIMD_BODY { return from[radius + j]; }, w, radius, n, to);
          },
      rows, weights.at, weights.radius, static_cast<std::ptrdiff_t>(count), out);
}

/// Adds the mirrored elements left and right of a row's `width` pixels; `row` points behind the
/// left border.
void mirror_ends(const SmoothingPlan& plan, float* row) {
  const auto step = static_cast<std::ptrdiff_t>(plan.step);
  for (int j = 1; j <= plan.x.radius; ++j)
    for (std::ptrdiff_t c = 0; c < step; ++c) {
      row[-j * step + c] = row[mirrored(-j, plan.width) * step + c];
      const int right = plan.width - 1 + j;
      row[right * step + c] = row[mirrored(right, plan.width) * step + c];
    }
}

void load(const std::uint8_t* levels, std::size_t count, float* out) {
  dispatch_simd(
      [](const std::uint8_t* __restrict in, std::size_t n, float* __restrict to)
          MILLRACE_SIMD_BODY {
            for (std::size_t i = 0; i < n; ++i) to[i] = in[i];
          },
      levels, count, out);
}
void load(const float* elements, std::size_t count, float* out) {
  std::copy(elements, elements + count, out);
}

void store(const float* row, std::size_t count, std::uint8_t* levels) {
  dispatch_simd(
      [](const float* __restrict in, std::size_t n, std::uint8_t* __restrict to)
          MILLRACE_SIMD_BODY {
            // Weights are positive and sum up to 1, so nothing leaves 0..255 by more than rounding.
            for (std::size_t i = 0; i < n; ++i)
              to[i] = static_cast<std::uint8_t>(static_cast<int>((in[i] + kRound) - kRound));
          },
      row, count, levels);
}
void store(const float* row, std::size_t count, float* elements) {
  std::copy(row, row + count, elements);
}

/// Smooths row by row. A row is smoothed along x when it is first needed, and kept while it is
/// needed. Its original may be overwritten after it was read, which happens before its own output
/// row is written.
template <class Element>
void smooth_rows(const SmoothingPlan& plan, Element* data, std::ptrdiff_t row, void* scratch) {
  const std::size_t count = plan.row();
  const int kept = plan.kept();
  const std::size_t border =
      static_cast<std::size_t>(plan.x.radius) * static_cast<std::size_t>(plan.step);
  auto* padded = static_cast<float*>(scratch) + aligned(border);
  float* out = static_cast<float*>(scratch) + aligned(border) + aligned(count + border);
  float* ring = out + aligned(count);
  const auto** rows =
      reinterpret_cast<const float**>(ring + static_cast<std::size_t>(kept) * aligned(count));
  int ready = 0;
  for (int y = 0; y < plan.height; ++y) {
    for (; ready < plan.height && ready <= y + plan.y.radius; ++ready) {
      load(data + ready * row, count, padded);
      mirror_ends(plan, padded);
      smooth_row(padded, plan.x, plan.step, count,
                 ring + static_cast<std::size_t>(ready % kept) * aligned(count));
    }
    for (int j = -plan.y.radius; j <= plan.y.radius; ++j)
      rows[j + plan.y.radius] =
          ring + static_cast<std::size_t>(mirrored(y + j, plan.height) % kept) * aligned(count);
    smooth_column(rows, plan.y, count, out);
    store(out, count, data + y * row);
  }
}

}  // namespace

SmoothingWeights gaussian_weights(int radius, double sigma, float* room) {
  double sum = 0;
  const auto weight = [&](int j) {
    const double exponent = -0.5 * (j / sigma) * (j / sigma);
    return exponent > -700 ? exponential(exponent) : 0.0;
  };
  for (int j = 1; j <= radius; ++j) sum += 2 * weight(j);
  sum += 1;
  for (int j = 0; j <= radius; ++j) room[j] = static_cast<float>(weight(j) / sum);
  return {radius, room};
}

std::size_t SmoothingPlan::scratch() const {
  const std::size_t border = static_cast<std::size_t>(x.radius) * static_cast<std::size_t>(step);
  const std::size_t floats = aligned(border) + aligned(row() + border) + aligned(row()) +
                             static_cast<std::size_t>(kept()) * aligned(row());
  return floats * sizeof(float) + (2 * static_cast<std::size_t>(y.radius) + 1) * sizeof(void*);
}

void smooth(const SmoothingPlan& plan, std::uint8_t* levels, std::ptrdiff_t row_bytes,
            void* scratch) {
  smooth_rows(plan, levels, row_bytes, scratch);
}

void smooth(const SmoothingPlan& plan, float* elements, void* scratch) {
  smooth_rows(plan, elements, static_cast<std::ptrdiff_t>(plan.row()), scratch);
}

// gaussian_blur: smooths with a Gaussian of random width (torchvision's GaussianBlur).
namespace {

class GaussianBlur {
 public:
  static constexpr const char* kName = "gaussian_blur";
  static constexpr const char* kPython = "GaussianBlur(kernel_size)";
  static constexpr const char* kHelp = "smooth with a Gaussian whose sigma is drawn uniformly";
  static constexpr int kMaxTaps = 255;
  static constexpr Parameter kParams[] = {
      integers("kernel_size", "[5]", lengths(1, 2), 1, kMaxTaps,
               "pixels, odd: one for both directions, or [width, height]"),
      numbers("sigma", "[0.1, 2]", lengths(1, 2), 1e-3, 1000,
              "standard deviation in pixels: one, or [low, high]")};
  // The reach is half the kernel, which only an instance knows.
  static constexpr Reach kReach{MILLRACE_GLOBAL, 0};

  explicit GaussianBlur(const Values& values) {
    const Numbers size = values.numbers("kernel_size");
    const int width = static_cast<int>(size.front()), height = static_cast<int>(size.back());
    if (width % 2 == 0 || height % 2 == 0)
      throw BadUse("an even kernel_size has no middle", "use 3, 5, 7, ...");
    radius_x_ = width / 2;
    radius_y_ = height / 2;
    const Numbers sigma = values.numbers("sigma");
    low_ = sigma.front();
    high_ = sigma.back();
    if (low_ > high_)
      throw BadUse("the low end of sigma lies above its high end", "write [low, high]");
  }

  std::size_t scratch(Size size, int channels) const { return plan(size, channels).scratch(); }

  void apply(Image image, Call& call) const {
    const double sigma = call.uniform(low_, high_);
    call.report("sigma", sigma);
    float x[kMaxTaps / 2 + 1], y[kMaxTaps / 2 + 1];
    SmoothingPlan smoothing = plan({image.width, image.height}, image.channels);
    smoothing.x = gaussian_weights(radius_x_, sigma, x);
    smoothing.y = gaussian_weights(radius_y_, sigma, y);
    smooth(smoothing, image.data, image.row, call.scratch<void>());
  }

 private:
  SmoothingPlan plan(Size size, int channels) const {
    return {size.width, size.height, channels, {radius_x_, nullptr}, {radius_y_, nullptr}};
  }

  int radius_x_, radius_y_;
  double low_, high_;
};

}  // namespace

const Augmentation kGaussianBlur = kAugmentation<GaussianBlur>;

// sharpness: moves levels away from or towards a smoothed image, with 3x3 weights of 1 around a 5
// (torchvision's RandomAdjustSharpness on 8-bit tensors: same levels). The outermost pixels stay.

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
  static constexpr const char* kPython = "RandomAdjustSharpness(sharpness_factor)";
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

const Augmentation kSharpness = kAugmentation<Sharpness>;

}  // namespace millrace::augment
