// Samples an image at displaced positions.
#include <algorithm>

#include "augment/ops/builtin.h"
#include "augment/ops/noise.h"
#include "augment/ops/pixels.h"
#include "augment/plan/dispatch_simd.h"

namespace millrace::augment {
namespace {

constexpr int kBits = 11;
constexpr int kOne = 1 << kBits;
constexpr int kRun = 256;  ///< pixels whose positions are computed at once

struct Positions {
  std::int32_t x[kRun], y[kRun];    ///< upper left tap, or the pixel itself
  std::int32_t wx[kRun], wy[kRun];  ///< weights of the right and the lower tap
};

/// Computes positions along one axis: first + i * step + by[i], limited to two pixels around the
/// image. The limit changes nothing, as everything farther out shows the fill.
void positions(const float* by, int first, int step, int count, int size, bool bilinear,
               std::int32_t* at, std::int32_t* weight) {
  dispatch_simd(
      [](const float* __restrict d, int start, int s, int n, int most, bool linear,
         std::int32_t* __restrict place, std::int32_t* __restrict part) MILLRACE_SIMD_BODY {
        const auto limit = static_cast<float>(most + 1);
        for (int i = 0; i < n; ++i) {
          float u = static_cast<float>(start + i * s) + d[i];
          u = u > -2 ? u : -2;
          u = u < limit ? u : limit;
          if (linear) {
            const int fixed = static_cast<int>((u + 2) * kOne + 0.5f) - 2 * kOne;
            place[i] = fixed >> kBits;
            part[i] = fixed & (kOne - 1);
          } else {
            constexpr float kRound =
                12582912.0f;  // 1.5 * 2^23 shifts the fraction out of the mantissa
            place[i] = static_cast<int>((u + kRound) - kRound);
          }
        }
      },
      by, first, step, count, size, bilinear, at, weight);
}

template <int kChannels>
void nearest(const ConstImage& from, const Positions& p, int count, const std::uint8_t* fill,
             std::uint8_t* out) {
  for (int i = 0; i < count; ++i, out += kChannels) {
    const bool inside = static_cast<unsigned>(p.x[i]) < static_cast<unsigned>(from.width) &&
                        static_cast<unsigned>(p.y[i]) < static_cast<unsigned>(from.height);
    const std::uint8_t* in = inside ? from.data + p.y[i] * from.row + p.x[i] * kChannels : fill;
    for (int c = 0; c < kChannels; ++c) out[c] = in[c];
  }
}

template <int kChannels>
void bilinear(const ConstImage& from, const Positions& p, int count, const std::uint8_t* fill,
              std::uint8_t* out) {
  const auto width = static_cast<unsigned>(from.width), height = static_cast<unsigned>(from.height);
  for (int i = 0; i < count; ++i, out += kChannels) {
    const int x = p.x[i], y = p.y[i];
    const std::uint8_t* taps[4];
    const std::uint8_t* corner = from.data + y * from.row + x * kChannels;
    if (static_cast<unsigned>(x) < width - 1 && static_cast<unsigned>(y) < height - 1) {
      taps[0] = corner;
      taps[1] = corner + kChannels;
      taps[2] = corner + from.row;
      taps[3] = corner + from.row + kChannels;
    } else {
      for (int t = 0; t < 4; ++t) {
        const int tx = x + (t & 1), ty = y + (t >> 1);
        const bool inside = static_cast<unsigned>(tx) < width && static_cast<unsigned>(ty) < height;
        taps[t] = inside ? from.data + ty * from.row + tx * kChannels : fill;
      }
    }
    const int right = p.wx[i], left = kOne - right, lower = p.wy[i], upper = kOne - lower;
    for (int c = 0; c < kChannels; ++c) {
      const int above = taps[0][c] * left + taps[1][c] * right;
      const int below = taps[2][c] * left + taps[3][c] * right;
      out[c] = static_cast<std::uint8_t>((above * upper + below * lower + kOne * kOne / 2) >>
                                         (2 * kBits));
    }
  }
}

}  // namespace

void displace(const ConstImage& from, const Displacement& by, Interpolation interpolation,
              const std::uint8_t (&fill)[4], const Image& to) {
  const bool linear = interpolation == Interpolation::bilinear;
  const auto run = from.channels == 1 ? (linear ? bilinear<1> : nearest<1>)
                                      : (linear ? bilinear<3> : nearest<3>);
  Positions at;
  for (int y = 0; y < to.height; ++y)
    for (int x = 0; x < to.width; x += kRun) {
      const int count = std::min(kRun, to.width - x);
      const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(y) * to.width + x;
      positions(by.x + first, x, 1, count, from.width, linear, at.x, at.wx);
      positions(by.y + first, y, 0, count, from.height, linear, at.y, at.wy);
      run(from, at, count, fill, to.data + y * to.row + x * to.channels);
    }
}

// elastic: reads every pixel at a random displacement; the displacements are smoothed, so that
// neighbours move together (torchvision's ElasticTransform).
namespace {

class Elastic {
 public:
  static constexpr const char* kName = "elastic";
  static constexpr const char* kPython = "ElasticTransform";
  static constexpr const char* kHelp = "move pixels by smooth random displacements";
  static constexpr double kMaxSigma = 100;
  static constexpr Parameter kParams[] = {
      numbers("alpha", "[50]", lengths(1, 2), 0, 10000,
              "strength: displacements are smoothed noise times half of it, in pixels; or [x, y]"),
      numbers("sigma", "[5]", lengths(1, 2), 0, kMaxSigma,
              "smoothness in pixels, or [x, y]; 0: none"),
      choice("interpolation", "bilinear", "nearest|bilinear", "interpolation method"),
      fill_param()};

  explicit Elastic(const Values& values) : interpolation_(values.interpolation()) {
    values.fill(fill_);
    const Numbers alpha = values.numbers("alpha"), sigma = values.numbers("sigma");
    axes_[0] = {alpha.front(), radius_of(sigma.front())};
    axes_[1] = {alpha.back(), radius_of(sigma.back())};
    sigma_x_ = sigma.front();
    sigma_y_ = sigma.back();
    if ((sigma_x_ > 0) != (sigma_y_ > 0))
      throw BadUse("sigma is zero along one axis only", "smooth both, or set sigma=0");
  }

  std::size_t scratch(Size size, int) const {
    return 2 * field(size) * sizeof(float) +
           std::max(plan(size, 0).scratch(), plan(size, 1).scratch());
  }

  void apply(ConstImage from, Image to, Call& call) const {
    const Size size{from.width, from.height};
    const std::size_t count =
        static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height);
    float* fields = call.scratch<float>();
    void* rest = fields + 2 * field(size);
    BulkBits bits(call);
    float x[kMaxRadius + 1], y[kMaxRadius + 1];
    for (int axis = 0; axis < 2; ++axis) {
      float* displacement = fields + static_cast<std::size_t>(axis) * field(size);
      fill_noise(bits, static_cast<float>(axes_[axis].alpha * 0.5), displacement, count);
      if (sigma_x_ <= 0) continue;
      SmoothingPlan smoothing = plan(size, axis);
      smoothing.x = gaussian_weights(smoothing.x.radius, sigma_x_, x);
      smoothing.y = gaussian_weights(smoothing.y.radius, sigma_y_, y);
      smooth(smoothing, displacement, rest);
    }
    displace(from, {fields, fields + field(size)}, interpolation_, fill_, to);
  }

 private:
  static constexpr int kMaxRadius = static_cast<int>(8 * kMaxSigma + 1) / 2;
  struct Axis {
    double alpha;
    int radius;  ///< radius of the kernel, equal along both axes
  };

  /// Returns the radius of a kernel of 8 sigma + 1 weights, made odd.
  static int radius_of(double sigma) { return static_cast<int>(8 * sigma + 1) / 2; }
  /// Returns the number of floats in one direction's displacements, rounded up to a cache line.
  static std::size_t field(Size size) {
    return (static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) + 15) /
           16 * 16;
  }
  SmoothingPlan plan(Size size, int axis) const {
    const int radius = axes_[axis].radius;
    return {size.width, size.height, 1, {radius, nullptr}, {radius, nullptr}};
  }

  /// Fills `out` with numbers uniform on [-most, most).
  static void fill_noise(BulkBits& bits, float most, float* out, std::size_t count) {
    std::size_t taken = 0;
    for (std::size_t done = 0; done < count; done += taken) {
      const std::uint32_t* words = bits.take(count - done, taken);
      dispatch_simd(
          [](const std::uint32_t* __restrict in, std::size_t n, float scale, float* __restrict to)
              MILLRACE_SIMD_BODY {
                for (std::size_t i = 0; i < n; ++i)
                  to[i] = static_cast<float>(static_cast<std::int32_t>(in[i])) * scale;
              },
          words, taken, most * 0x1p-31f, out + done);
    }
  }

  Axis axes_[2];
  double sigma_x_, sigma_y_;
  std::uint8_t fill_[4];
  Interpolation interpolation_;
};

}  // namespace

const Augmentation kElastic = kAugmentation<Elastic>;

}  // namespace millrace::augment
