// The table of the built-in augmentations. A new one is named here and in builtin.h.
#include "augment/builtin.h"

#include <iterator>

#include "pipeline/units/builtin.h"

namespace millrace {
namespace {

constexpr const millrace_unit* kUnits[] = {&kCenterCrop,
                                           &kCrop,
                                           &kHflip,
                                           &kPad,
                                           &kRandomAffine,
                                           &kRandomCrop,
                                           &kRandomPerspective,
                                           &kRandomResizedCrop,
                                           &kRandomRotation,
                                           &kResize,
                                           &kVflip};

}  // namespace

// The version counts up when a batch's bytes change for the same recipe.
const millrace_plugin_table kBuiltInAugmentations{MILLRACE_MAGIC,
                                                  MILLRACE_ABI_MAJOR,
                                                  MILLRACE_ABI_MINOR,
                                                  sizeof(millrace_plugin_table),
                                                  "augmentations",
                                                  "2.0",
                                                  "MIT",
                                                  kUnits,
                                                  std::size(kUnits)};

}  // namespace millrace
