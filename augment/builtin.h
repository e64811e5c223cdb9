// The built-in augmentations: each file defines one (or a family) with the interface that plugins
// use, and builtin.cpp makes a table of them.
#pragma once

#include "plugins/millrace.hpp"

namespace millrace {

extern const millrace_unit kCenterCrop;
extern const millrace_unit kCrop;
extern const millrace_unit kHflip;
extern const millrace_unit kPad;
extern const millrace_unit kRandomAffine;
extern const millrace_unit kRandomCrop;
extern const millrace_unit kRandomPerspective;
extern const millrace_unit kRandomResizedCrop;
extern const millrace_unit kRandomRotation;
extern const millrace_unit kResize;
extern const millrace_unit kVflip;

}  // namespace millrace
