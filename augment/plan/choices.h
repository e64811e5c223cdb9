// Recipe keys of the compiled chain with fixed choices, as enumerations.
#pragma once

#include "millrace/plan.h"
#include "millrace/recipe.h"
#include "millrace/transform.h"
#include "recipe/choice.h"

namespace millrace::augment {

/// Selects where levels become numbers: output.normalize.
enum class Normalize { loader, device };

inline DType dtype_of(const Recipe& recipe) {
  return recipe::choice_of<DType>(
      recipe, "output.dtype",
      {{"f32", DType::f32}, {"u8", DType::u8}, {"f16", DType::f16}, {"bf16", DType::bf16}});
}

inline Layout layout_of(const Recipe& recipe) {
  return recipe::choice_of<Layout>(recipe, "output.layout",
                                   {{"chw", Layout::chw}, {"hwc", Layout::hwc}});
}

inline Normalize normalize_of(const Recipe& recipe) {
  return recipe::choice_of<Normalize>(
      recipe, "output.normalize", {{"loader", Normalize::loader}, {"device", Normalize::device}});
}

inline Resample resample_of(const Recipe& recipe) {
  return recipe::choice_of<Resample>(recipe, "resample",
                                     {{"once", Resample::once}, {"stepwise", Resample::stepwise}});
}

}  // namespace millrace::augment
