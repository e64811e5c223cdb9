// The built-in augmentations. Each file defines one (or a family) with the interface that plugins
// use, and builtin.cpp puts them into one table (equal-plugins contract).
#pragma once

#include "millrace/millrace.hpp"

namespace millrace::augment {

extern const millrace_unit kAffine;
extern const millrace_unit kAutoAugment;
extern const millrace_unit kAutocontrast;
extern const millrace_unit kBrightness;
extern const millrace_unit kCenterCrop;
extern const millrace_unit kColorJitter;
extern const millrace_unit kContrast;
extern const millrace_unit kCrop;
extern const millrace_unit kCutmix;
extern const millrace_unit kElastic;
extern const millrace_unit kEqualize;
extern const millrace_unit kGaussianBlur;
extern const millrace_unit kGaussianNoise;
extern const millrace_unit kGrayscale;
extern const millrace_unit kHflip;
extern const millrace_unit kHue;
extern const millrace_unit kInvert;
extern const millrace_unit kJpegCompression;
extern const millrace_unit kMixup;
extern const millrace_unit kPad;
extern const millrace_unit kPosterize;
extern const millrace_unit kRandAugment;
extern const millrace_unit kRandomAffine;
extern const millrace_unit kRandomApply;
extern const millrace_unit kRandomCrop;
extern const millrace_unit kRandomErasing;
extern const millrace_unit kRandomPerspective;
extern const millrace_unit kRandomResizedCrop;
extern const millrace_unit kRandomRotation;
extern const millrace_unit kResize;
extern const millrace_unit kSaturation;
extern const millrace_unit kSharpness;
extern const millrace_unit kSolarize;
extern const millrace_unit kTrivialAugment;
extern const millrace_unit kVflip;

}  // namespace millrace::augment
