// mixup (Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018): replaces neighbours of a
// batch, and their labels, by weighted sums of each other. torchvision's MixUp pairs each sample
// with the one before it; here both samples of a pair are mixed, with the same weight.
#include "augment/ops/builtin.h"
#include "augment/ops/distributions.h"
#include "augment/ops/elements.h"
#include "augment/ops/mix.h"

namespace millrace::augment {
namespace {

template <class Element>
void mix(Element* first, Element* second, std::size_t count, double part) {
  wide(
      [](Element* __restrict a, Element* __restrict b, std::size_t n, float own, float other)
          MILLRACE_WIDE {
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
  static constexpr const char* kHelp =
      "make neighbours of a batch weighted sums of each other, labels too";
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

  double alpha;
};

}  // namespace

const millrace_unit kMixup = kUnit<Mixup>;

}  // namespace millrace::augment
