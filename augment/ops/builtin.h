// The built-in augmentations. Each file defines one (or a family) with the interface that plugins
// use, and builtin.cpp puts them into one table (equal-plugins contract).
#pragma once

#include "base/private_api.h"
#include "millrace/millrace.hpp"

namespace millrace::augment {

/// A built-in augmentation: its class in Python, and its table.
struct Augmentation {
  /// Python class with the arguments that come first, "Pad(padding, fill=)": one without a default
  /// is required, `name=` has the declared default, `name=1` one of Python's own. The parameters
  /// that it leaves out follow as declared. tools/python_classes.py writes the classes.
  const char* python;
  millrace_unit unit;
};

/// The augmentation of a class that declares kPython beside the members of millrace.hpp.
template <class T>
inline constexpr Augmentation kAugmentation{T::kPython, kUnit<T>};

/// Returns Augmentation::python of a built-in augmentation, or null for any other unit.
MILLRACE_PRIVATE_API const char* python_of(const millrace_unit& unit);

extern const Augmentation kAffine;
extern const Augmentation kAutoAugment;
extern const Augmentation kAutocontrast;
extern const Augmentation kBrightness;
extern const Augmentation kCenterCrop;
extern const Augmentation kColorJitter;
extern const Augmentation kContrast;
extern const Augmentation kCopyPaste;
extern const Augmentation kCrop;
extern const Augmentation kCutmix;
extern const Augmentation kElastic;
extern const Augmentation kEqualize;
extern const Augmentation kGaussianBlur;
extern const Augmentation kGaussianNoise;
extern const Augmentation kGrayscale;
extern const Augmentation kHflip;
extern const Augmentation kHue;
extern const Augmentation kInvert;
extern const Augmentation kJpegCompression;
extern const Augmentation kMixup;
extern const Augmentation kMosaic;
extern const Augmentation kPad;
extern const Augmentation kPosterize;
extern const Augmentation kRandAugment;
extern const Augmentation kRandomAffine;
extern const Augmentation kRandomApply;
extern const Augmentation kRandomCrop;
extern const Augmentation kRandomErasing;
extern const Augmentation kRandomHsv;
extern const Augmentation kRandomPerspective;
extern const Augmentation kRandomResizedCrop;
extern const Augmentation kRandomRotation;
extern const Augmentation kResize;
extern const Augmentation kSaturation;
extern const Augmentation kSharpness;
extern const Augmentation kSolarize;
extern const Augmentation kTrivialAugment;
extern const Augmentation kVflip;

}  // namespace millrace::augment
