// gaussian_blur: smooths with a Gaussian of random width (torchvision's GaussianBlur).
#include "augment/ops/builtin.h"
#include "augment/ops/smooth.h"

namespace millrace::augment {
namespace {

class GaussianBlur {
 public:
  static constexpr const char* kName = "gaussian_blur";
  static constexpr const char* kHelp = "smooth with a Gaussian whose sigma is drawn uniformly";
  static constexpr int kMaxTaps = 255;
  static constexpr Parameter kParams[] = {
      integers("kernel_size", "[5]", lengths(1, 2), 1, kMaxTaps,
               "pixels, odd: both ways, or [width, height]"),
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

const millrace_unit kGaussianBlur = kUnit<GaussianBlur>;

}  // namespace millrace::augment
