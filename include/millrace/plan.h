// The plan: compiles a chain of augmentations into the Transform that a loader runs on every
// sample.
#pragma once

#include <memory>
#include <vector>

#include "millrace/export.h"
#include "millrace/recipe.h"
#include "millrace/transform.h"

namespace millrace {

/// `resample`: whether neighbouring geometric ops share one pass over the pixels.
enum class Resample {
  once,      ///< as few passes over the pixels as the chain allows
  stepwise,  ///< one pass per op
};

/// Describes the images that come in.
struct Source {
  Size size;                ///< size of all images, or of the first one if sizes vary
  int channels = 1;         ///< 1 or 3; up to kMaxChannels with another depth than u8
  Depth depth = Depth::u8;  ///< `decode.depth`: with u16 and f32 the chain computes with floats
};

/// `[output]`: type, layout and normalisation of a sample. mean and std are fractions of full
/// scale, one number or one per channel.
struct OutputOptions {
  DType dtype = DType::f32;
  Layout layout = Layout::chw;
  std::vector<double> mean{0.0};
  std::vector<double> std{1.0};
};

/// `resample` and `[decode]`: how the chain is compiled.
struct PlanOptions {
  PlanOptions(Resample r = Resample::once) : resample(r) {}  // NOLINT: a resample is enough
  Resample resample;
  bool region = true;  ///< decode only the region that the first pass reads; faster, same bytes
  bool dct = false;    ///< let the decoder scale down by powers of two; approximate
};

inline constexpr int kUnmixedLabels = -1;

/// Returns `chain` compiled for images like `source`. Ops fuse as docs/explanation/planning.md
/// describes. `classes` is the number of labels, for ops that mix them; kUnmixedLabels if samples
/// are mixed and their labels stay, because the data set has boxes or masks instead. The result is
/// immutable and safe to share between threads. Throws UsageError if the chain cannot be applied to
/// the source.
MILLRACE_EXPORT std::shared_ptr<const Transform> compile_plan(const std::vector<OpSpec>& chain,
                                                              const Source& source,
                                                              const OutputOptions& output = {},
                                                              const PlanOptions& options = {},
                                                              int classes = 0);

}  // namespace millrace
