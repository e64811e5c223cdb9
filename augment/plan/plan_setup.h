// Compiles the chain of a recipe.
#pragma once

#include <memory>
#include <vector>

#include "augment/plan/plan.h"
#include "base/private_api.h"
#include "millrace/reader.h"
#include "millrace/recipe.h"

namespace millrace::augment {

/// Compiles a chain from the images of `reader` to the format of [output]. Throws UsageError for a
/// chain that the images or [output] do not fit, DataError if no image can be decoded.
MILLRACE_PRIVATE_API std::shared_ptr<const Plan> make_plan(const Recipe& recipe,
                                                           const std::vector<OpSpec>& chain,
                                                           const Reader& reader);

/// Compiles [[augment]] likewise. With output.sizes, the plan has one of its own for each of them;
/// its output() is the largest.
MILLRACE_PRIVATE_API std::shared_ptr<const Plan> make_training_plan(const Recipe& recipe,
                                                                    const Reader& reader);

/// Throws UsageError if an op of recipe.augment() works on whole batches and `world` ranks would
/// divide them.
MILLRACE_PRIVATE_API void require_divisible(const Recipe& recipe, int world);

}  // namespace millrace::augment
