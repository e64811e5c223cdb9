// A chain of augmentations, compiled: the Transform that the loader runs on every sample.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "augment/store.h"
#include "pipeline/recipe.h"
#include "pipeline/transform.h"
#include "pipeline/units/unit.h"

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

class Plan final : public Transform {
 public:
  /// Throws UsageError where the chain cannot be applied to the source.
  Plan(const std::vector<OpSpec>& chain, const Source& source, const OutputOptions& output,
       Resample resample);

  std::unique_ptr<Scratch> make_scratch() const override;
  const SampleSpec& output() const override { return spec_; }
  void run(const SampleKey& key, PixelSource& source, std::byte* out,
           Scratch& scratch) const override;

 private:
  struct Op {
    std::uint32_t id;  ///< keys the draws
    std::unique_ptr<Unit> unit;
  };

  std::vector<Op> ops_;
  SampleSpec spec_;
  Store store_;
  Resample resample_;
};

}  // namespace millrace
