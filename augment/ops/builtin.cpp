// The table of the built-in augmentations. List a new one here and in builtin.h.
#include "augment/ops/builtin.h"

#include <iterator>

#include "plugins/host/registry.h"

namespace millrace::augment {
namespace {

constexpr const millrace_unit* kUnits[] = {&kAffine,
                                           &kAutoAugment,
                                           &kAutocontrast,
                                           &kBrightness,
                                           &kCenterCrop,
                                           &kColorJitter,
                                           &kContrast,
                                           &kCrop,
                                           &kCutmix,
                                           &kElastic,
                                           &kEqualize,
                                           &kGaussianBlur,
                                           &kGaussianNoise,
                                           &kGrayscale,
                                           &kHflip,
                                           &kHue,
                                           &kInvert,
                                           &kJpegCompression,
                                           &kMixup,
                                           &kPad,
                                           &kPosterize,
                                           &kRandAugment,
                                           &kRandomAffine,
                                           &kRandomApply,
                                           &kRandomCrop,
                                           &kRandomErasing,
                                           &kRandomPerspective,
                                           &kRandomResizedCrop,
                                           &kRandomRotation,
                                           &kResize,
                                           &kSaturation,
                                           &kSharpness,
                                           &kSolarize,
                                           &kTrivialAugment,
                                           &kVflip};

// Raise the version when a batch's bytes change for the same recipe.
constexpr millrace_plugin_table kTable{MILLRACE_MAGIC,     MILLRACE_ABI_MAJOR,
                                       MILLRACE_ABI_MINOR, sizeof(millrace_plugin_table),
                                       "augmentations",    "2.0",
                                       "Apache-2.0",       kUnits,
                                       std::size(kUnits)};

const plugins::BuiltIn kRegistered{kTable};

}  // namespace
}  // namespace millrace::augment
