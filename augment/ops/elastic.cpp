// elastic: reads every pixel at a random displacement; the displacements are smoothed, so that
// neighbours move together (torchvision's ElasticTransform).
#include <algorithm>

#include "augment/ops/builtin.h"
#include "augment/ops/bulk_bits.h"
#include "augment/ops/displace.h"
#include "augment/ops/smooth.h"

namespace millrace::augment {
namespace {

class Elastic {
 public:
  static constexpr const char* kName = "elastic";
  static constexpr const char* kHelp = "move pixels by smooth random displacements";
  static constexpr double kMaxSigma = 100;
  static constexpr Parameter kParams[] = {
      numbers("alpha", "[50]", lengths(1, 2), 0, 10000,
              "strength: displacements are smoothed noise times half of it, in pixels; or [x, y]"),
      numbers("sigma", "[5]", lengths(1, 2), 0, kMaxSigma,
              "smoothness in pixels, or [x, y]; 0: none"),
      choice("interpolation", "bilinear", "nearest|bilinear", "how positions are read"),
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
      wide(
          [](const std::uint32_t* __restrict in, std::size_t n, float scale, float* __restrict to)
              MILLRACE_WIDE {
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

const millrace_unit kElastic = kUnit<Elastic>;

}  // namespace millrace::augment
