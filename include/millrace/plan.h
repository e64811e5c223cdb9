// The plan: a chain of augmentations compiled into the transform that a loader runs on every
// sample.
#pragma once

#include <memory>
#include <vector>

#include "millrace/recipe.h"
#include "millrace/transform.h"

namespace millrace {

/// `resample`.
enum class Resample {
  once,      ///< as few passes over the pixels as the chain allows
  stepwise,  ///< every op by itself
};

/// What images come in.
struct Source {
  Size size;         ///< of all images, or of the first where they may vary
  int channels = 1;  ///< 1 or 3
};

/// `[output]`.
struct OutputOptions {
  DType dtype = DType::f32;
  Layout layout = Layout::chw;
  std::vector<double> mean{0.0};
  std::vector<double> std{1.0};
};

/// `resample` and `[decode]`.
struct PlanOptions {
  PlanOptions(Resample r = Resample::once) : resample(r) {}  // NOLINT: a resample is enough
  Resample resample;
  bool region = true;  ///< only what the first pass reads is decoded: the same bytes, sooner
  bool dct = false;    ///< a reduction may leave powers of two to the decoder: approximate
};

/// Compiles `chain` for images like `source` (how ops fuse: docs/planning.md). `classes`: number of
/// labels, for ops that mix them. Throws UsageError where the chain cannot be applied to the
/// source.
std::shared_ptr<const Transform> compile_plan(const std::vector<OpSpec>& chain,
                                              const Source& source,
                                              const OutputOptions& output = {},
                                              const PlanOptions& options = {}, int classes = 0);

}  // namespace millrace
