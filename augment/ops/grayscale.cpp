// grayscale: turns RGB images gray with probability p and keeps the number of channels
// (torchvision's RandomGrayscale; p = 1 is its Grayscale).
#include "augment/ops/builtin.h"
#include "augment/ops/pixels.h"

namespace millrace::augment {
namespace {

struct Grayscale {
  static constexpr const char* kName = "grayscale";
  static constexpr const char* kPython = "RandomGrayscale";
  static constexpr const char* kHelp = "make RGB gray, keeping three channels, with probability p";
  static constexpr Parameter kParams[] = {p_param("0.1")};

  explicit Grayscale(const Values& values) : p(values.number("p")) {}
  void apply(Image image, Call& call) const {
    if (is_applied(call, p)) to_gray(image);
  }
  double p;
};

}  // namespace

const Augmentation kGrayscale = kAugmentation<Grayscale>;

}  // namespace millrace::augment
