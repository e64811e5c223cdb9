// Operations of auto_augment, rand_augment and trivial_augment, and the policies of auto_augment
// (Cubuk et al., "AutoAugment: Learning Augmentation Strategies from Data", 2019), as torchvision's
// AutoAugment states them.
#pragma once

#include <array>

namespace millrace::augment {

enum Op : int {
  kOpIdentity,
  kOpShearX,
  kOpShearY,
  kOpTranslateX,
  kOpTranslateY,
  kOpRotate,
  kOpBrightness,
  kOpColor,
  kOpContrast,
  kOpSharpness,
  kOpPosterize,
  kOpSolarize,
  kOpAutocontrast,
  kOpEqualize,
  kOpCount,  ///< number of those that rand_augment and trivial_augment draw from
  kOpInvert = kOpCount
};

/// One operation of a sub-policy.
struct Step {
  int op;
  double probability;
  int magnitude;  ///< 0 to 9; not used by operations without a strength
};
/// Two operations, applied one after the other.
using SubPolicy = std::array<Step, 2>;

constexpr int kSubPolicies = 25;
using Policy = std::array<SubPolicy, kSubPolicies>;

/// The policies, in the order of the choices of auto_augment's parameter.
constexpr Policy kAutoAugmentPolicies[] = {
    // imagenet
    {{
        {{{kOpPosterize, 0.4, 8}, {kOpRotate, 0.6, 9}}},
        {{{kOpSolarize, 0.6, 5}, {kOpAutocontrast, 0.6, 0}}},
        {{{kOpEqualize, 0.8, 0}, {kOpEqualize, 0.6, 0}}},
        {{{kOpPosterize, 0.6, 7}, {kOpPosterize, 0.6, 6}}},
        {{{kOpEqualize, 0.4, 0}, {kOpSolarize, 0.2, 4}}},
        {{{kOpEqualize, 0.4, 0}, {kOpRotate, 0.8, 8}}},
        {{{kOpSolarize, 0.6, 3}, {kOpEqualize, 0.6, 0}}},
        {{{kOpPosterize, 0.8, 5}, {kOpEqualize, 1, 0}}},
        {{{kOpRotate, 0.2, 3}, {kOpSolarize, 0.6, 8}}},
        {{{kOpEqualize, 0.6, 0}, {kOpPosterize, 0.4, 6}}},
        {{{kOpRotate, 0.8, 8}, {kOpColor, 0.4, 0}}},
        {{{kOpRotate, 0.4, 9}, {kOpEqualize, 0.6, 0}}},
        {{{kOpEqualize, 0, 0}, {kOpEqualize, 0.8, 0}}},
        {{{kOpInvert, 0.6, 0}, {kOpEqualize, 1, 0}}},
        {{{kOpColor, 0.6, 4}, {kOpContrast, 1, 8}}},
        {{{kOpRotate, 0.8, 8}, {kOpColor, 1, 2}}},
        {{{kOpColor, 0.8, 8}, {kOpSolarize, 0.8, 7}}},
        {{{kOpSharpness, 0.4, 7}, {kOpInvert, 0.6, 0}}},
        {{{kOpShearX, 0.6, 5}, {kOpEqualize, 1, 0}}},
        {{{kOpColor, 0.4, 0}, {kOpEqualize, 0.6, 0}}},
        {{{kOpEqualize, 0.4, 0}, {kOpSolarize, 0.2, 4}}},
        {{{kOpSolarize, 0.6, 5}, {kOpAutocontrast, 0.6, 0}}},
        {{{kOpInvert, 0.6, 0}, {kOpEqualize, 1, 0}}},
        {{{kOpColor, 0.6, 4}, {kOpContrast, 1, 8}}},
        {{{kOpEqualize, 0.8, 0}, {kOpEqualize, 0.6, 0}}},
    }},
    // cifar10
    {{
        {{{kOpInvert, 0.1, 0}, {kOpContrast, 0.2, 6}}},
        {{{kOpRotate, 0.7, 2}, {kOpTranslateX, 0.3, 9}}},
        {{{kOpSharpness, 0.8, 1}, {kOpSharpness, 0.9, 3}}},
        {{{kOpShearY, 0.5, 8}, {kOpTranslateY, 0.7, 9}}},
        {{{kOpAutocontrast, 0.5, 0}, {kOpEqualize, 0.9, 0}}},
        {{{kOpShearY, 0.2, 7}, {kOpPosterize, 0.3, 7}}},
        {{{kOpColor, 0.4, 3}, {kOpBrightness, 0.6, 7}}},
        {{{kOpSharpness, 0.3, 9}, {kOpBrightness, 0.7, 9}}},
        {{{kOpEqualize, 0.6, 0}, {kOpEqualize, 0.5, 0}}},
        {{{kOpContrast, 0.6, 7}, {kOpSharpness, 0.6, 5}}},
        {{{kOpColor, 0.7, 7}, {kOpTranslateX, 0.5, 8}}},
        {{{kOpEqualize, 0.3, 0}, {kOpAutocontrast, 0.4, 0}}},
        {{{kOpTranslateY, 0.4, 3}, {kOpSharpness, 0.2, 6}}},
        {{{kOpBrightness, 0.9, 6}, {kOpColor, 0.2, 8}}},
        {{{kOpSolarize, 0.5, 2}, {kOpInvert, 0, 0}}},
        {{{kOpEqualize, 0.2, 0}, {kOpAutocontrast, 0.6, 0}}},
        {{{kOpEqualize, 0.2, 0}, {kOpEqualize, 0.6, 0}}},
        {{{kOpColor, 0.9, 9}, {kOpEqualize, 0.6, 0}}},
        {{{kOpAutocontrast, 0.8, 0}, {kOpSolarize, 0.2, 8}}},
        {{{kOpBrightness, 0.1, 3}, {kOpColor, 0.7, 0}}},
        {{{kOpSolarize, 0.4, 5}, {kOpAutocontrast, 0.9, 0}}},
        {{{kOpTranslateY, 0.9, 9}, {kOpTranslateY, 0.7, 9}}},
        {{{kOpAutocontrast, 0.9, 0}, {kOpSolarize, 0.8, 3}}},
        {{{kOpEqualize, 0.8, 0}, {kOpInvert, 0.1, 0}}},
        {{{kOpTranslateY, 0.7, 9}, {kOpAutocontrast, 0.9, 0}}},
    }},
    // svhn
    {{
        {{{kOpShearX, 0.9, 4}, {kOpInvert, 0.2, 0}}},
        {{{kOpShearY, 0.9, 8}, {kOpInvert, 0.7, 0}}},
        {{{kOpEqualize, 0.6, 0}, {kOpSolarize, 0.6, 6}}},
        {{{kOpInvert, 0.9, 0}, {kOpEqualize, 0.6, 0}}},
        {{{kOpEqualize, 0.6, 0}, {kOpRotate, 0.9, 3}}},
        {{{kOpShearX, 0.9, 4}, {kOpAutocontrast, 0.8, 0}}},
        {{{kOpShearY, 0.9, 8}, {kOpInvert, 0.4, 0}}},
        {{{kOpShearY, 0.9, 5}, {kOpSolarize, 0.2, 6}}},
        {{{kOpInvert, 0.9, 0}, {kOpAutocontrast, 0.8, 0}}},
        {{{kOpEqualize, 0.6, 0}, {kOpRotate, 0.9, 3}}},
        {{{kOpShearX, 0.9, 4}, {kOpSolarize, 0.3, 3}}},
        {{{kOpShearY, 0.8, 8}, {kOpInvert, 0.7, 0}}},
        {{{kOpEqualize, 0.9, 0}, {kOpTranslateY, 0.6, 6}}},
        {{{kOpInvert, 0.9, 0}, {kOpEqualize, 0.6, 0}}},
        {{{kOpContrast, 0.3, 3}, {kOpRotate, 0.8, 4}}},
        {{{kOpInvert, 0.8, 0}, {kOpTranslateY, 0, 2}}},
        {{{kOpShearY, 0.7, 6}, {kOpSolarize, 0.4, 8}}},
        {{{kOpInvert, 0.6, 0}, {kOpRotate, 0.8, 4}}},
        {{{kOpShearY, 0.3, 7}, {kOpTranslateX, 0.9, 3}}},
        {{{kOpShearX, 0.1, 6}, {kOpInvert, 0.6, 0}}},
        {{{kOpSolarize, 0.7, 2}, {kOpTranslateY, 0.6, 7}}},
        {{{kOpShearY, 0.8, 4}, {kOpInvert, 0.8, 0}}},
        {{{kOpShearX, 0.7, 9}, {kOpTranslateY, 0.8, 3}}},
        {{{kOpShearY, 0.8, 5}, {kOpAutocontrast, 0.7, 0}}},
        {{{kOpShearX, 0.7, 2}, {kOpInvert, 0.1, 0}}},
    }}};

}  // namespace millrace::augment
