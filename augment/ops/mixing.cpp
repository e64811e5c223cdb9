// mixup (Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018): replaces neighbours of a
// batch, and their labels, by weighted sums of each other. torchvision's MixUp pairs each sample
// with the one before it; here both samples of a pair are mixed, with the same weight.
#include "augment/ops/mixing.h"

#include <algorithm>
#include <cmath>

#include "augment/ops/builtin.h"

namespace millrace::augment {
namespace {

template <class Element>
void mix(Element* first, Element* second, std::size_t count, double part) {
  dispatch_simd(
      [](Element* __restrict a, Element* __restrict b, std::size_t n, float own, float other)
          MILLRACE_SIMD_BODY {
            for (std::size_t i = 0; i < n; ++i) {
              const float x = to_float(a[i]), y = to_float(b[i]);
              a[i] = from_float<Element>(y * other + x * own);
              b[i] = from_float<Element>(x * other + y * own);
            }
          },
      first, second, count, static_cast<float>(part), static_cast<float>(1 - part));
}

struct Mixup {
  static constexpr const char* kName = "mixup";
  static constexpr const char* kPython = "MixUp";
  static constexpr const char* kHelp = "blend neighbouring samples and their labels";
  static constexpr Parameter kParams[] = {
      number("alpha", "1", 1e-3, 1000, "weights are drawn from Beta(alpha, alpha)")};

  explicit Mixup(const Values& values) : alpha(values.number("alpha")) {}

  void pair(const Pair& pair, Call& call) const {
    const double part = beta_deviate(alpha, alpha, call);
    call.report("lambda", part);
    const std::size_t count = static_cast<std::size_t>(pair.sample.size.width) *
                              static_cast<std::size_t>(pair.sample.size.height) *
                              static_cast<std::size_t>(pair.sample.channels);
    with_element(pair.sample.dtype, [&](auto element) {
      using Element = decltype(element);
      mix(static_cast<Element*>(pair.first), static_cast<Element*>(pair.second), count, part);
    });
    mix_labels(pair, part);
  }
  void parts(const millrace_sample& sample, Parts& parts, Call& call) const {
    const double part = beta_deviate(alpha, alpha, call);
    const Rect whole{0, 0, sample.size.width, sample.size.height};
    for (int to = 0; to < 2; ++to) {
      parts.add({to, to, whole, 0, 0, part});
      parts.add({to, 1 - to, whole, 0, 0, 1 - part});
    }
  }

  double alpha;
};

}  // namespace

const Augmentation kMixup = kAugmentation<Mixup>;

// cutmix (Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
// Features", 2019): swaps a box between neighbours of a batch and mixes their labels by its area.
// Uses torchvision's box (CutMix); both samples of a pair get a part of the other.
namespace {

struct Cutmix {
  static constexpr const char* kName = "cutmix";
  static constexpr const char* kPython = "CutMix";
  static constexpr const char* kHelp =
      "swap a box between neighbouring samples, and mix their labels";
  static constexpr Parameter kParams[] = {
      number("alpha", "1", 1e-3, 1000, "1 - area of the box is drawn from Beta(alpha, alpha)")};

  explicit Cutmix(const Values& values) : alpha(values.number("alpha")) {}

  void pair(const Pair& pair, Call& call) const {
    const millrace_sample& sample = pair.sample;
    const double part = beta_deviate(alpha, alpha, call);
    const int x = static_cast<int>(call.integer(static_cast<std::uint32_t>(sample.size.width)));
    const int y = static_cast<int>(call.integer(static_cast<std::uint32_t>(sample.size.height)));
    const double half = 0.5 * std::sqrt(1 - part);
    const int half_width = static_cast<int>(half * sample.size.width);
    const int half_height = static_cast<int>(half * sample.size.height);
    const Rect box{std::max(x - half_width, 0), std::max(y - half_height, 0),
                   std::min(x + half_width, sample.size.width),
                   std::min(y + half_height, sample.size.height)};
    const double area = static_cast<double>(box.x1 - box.x0) * (box.y1 - box.y0);
    const double own = 1 - area / (static_cast<double>(sample.size.width) * sample.size.height);
    call.report("lambda", own);
    call.report("x", box.x0);
    call.report("y", box.y0);
    call.report("width", box.x1 - box.x0);
    call.report("height", box.y1 - box.y0);
    with_element(sample.dtype, [&](auto element) {
      using Element = decltype(element);
      swap_box(static_cast<Element*>(pair.first), static_cast<Element*>(pair.second), sample, box);
    });
    mix_labels(pair, own);
  }

  template <class Element>
  static void swap_box(Element* first, Element* second, const millrace_sample& sample,
                       const Rect& box) {
    const bool planar = sample.layout == MILLRACE_CHW;
    const int pixel = planar ? 1 : sample.channels;
    for (int plane = 0; plane < (planar ? sample.channels : 1); ++plane)
      for (int y = box.y0; y < box.y1; ++y) {
        const std::ptrdiff_t row =
            (static_cast<std::ptrdiff_t>(plane) * sample.size.height + y) * sample.size.width;
        std::swap_ranges(first + (row + box.x0) * pixel, first + (row + box.x1) * pixel,
                         second + (row + box.x0) * pixel);
      }
  }

  double alpha;
};

}  // namespace

const Augmentation kCutmix = kAugmentation<Cutmix>;

}  // namespace millrace::augment
