// The table of the built-in augmentations. List a new one here and in builtin.h.
#include "augment/ops/builtin.h"

#include <array>
#include <cstddef>
#include <iterator>

#include "plugins/host/registry.h"

namespace millrace::augment {
namespace {

constexpr const Augmentation* kAll[] = {&kAffine,
                                        &kAutoAugment,
                                        &kAutocontrast,
                                        &kBrightness,
                                        &kCenterCrop,
                                        &kColorJitter,
                                        &kContrast,
                                        &kCopyPaste,
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
                                        &kMosaic,
                                        &kPad,
                                        &kPosterize,
                                        &kRandAugment,
                                        &kRandomAffine,
                                        &kRandomApply,
                                        &kRandomCrop,
                                        &kRandomErasing,
                                        &kRandomHsv,
                                        &kRandomPerspective,
                                        &kRandomResizedCrop,
                                        &kRandomRotation,
                                        &kResize,
                                        &kSaturation,
                                        &kSharpness,
                                        &kSolarize,
                                        &kTrivialAugment,
                                        &kVflip};

constexpr auto kUnits = [] {
  std::array<const millrace_unit*, std::size(kAll)> units{};
  for (std::size_t i = 0; i < units.size(); ++i) units[i] = &kAll[i]->unit;
  return units;
}();

// Raise the version when a batch's bytes change for the same recipe.
constexpr millrace_plugin_table kTable{MILLRACE_MAGIC,     MILLRACE_ABI_MAJOR,
                                       MILLRACE_ABI_MINOR, sizeof(millrace_plugin_table),
                                       "augmentations",    "2.0",
                                       "Apache-2.0",       kUnits.data(),
                                       kUnits.size()};

const plugins::BuiltIn kRegistered{kTable};

}  // namespace

const char* python_of(const millrace_unit& unit) {
  for (const Augmentation* const one : kAll)
    if (&one->unit == &unit) return one->python;
  return nullptr;
}

}  // namespace millrace::augment
