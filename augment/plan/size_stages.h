// Progressive resizing: samples whose size depends on the epoch.
#pragma once

#include <cstdint>
#include <vector>

#include "base/private_api.h"
#include "millrace/recipe.h"

namespace millrace::augment {

/// A chain whose samples have one size, and the first epoch that it makes.
struct SizeStage {
  std::uint32_t epoch = 0;
  int side = 0;  ///< of the square samples, in pixels
  std::vector<OpSpec> chain;
};

/// Returns the chains of [[augment]] with output.sizes as `size` of the last op that has one, by
/// ascending epochs from 0 on; none without output.sizes. Throws UsageError if the keys contradict
/// each other, or no op has a `size` of equal sides.
MILLRACE_PRIVATE_API std::vector<SizeStage> size_stages(const Recipe& recipe);

}  // namespace millrace::augment
