// A chain of augmentations, compiled: the Transform that the loader runs on every sample.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "augment/plan/store.h"
#include "augment/plan/trace.h"
#include "millrace/error.h"
#include "millrace/plan.h"
#include "plugins/host/unit.h"

namespace millrace::augment {

/// A chain that cannot take images of the source's size; others it may take.
struct Misfit : UsageError {
  using UsageError::UsageError;
};

class Plan final : public Transform {
 public:
  /// Throws UsageError where the chain cannot be applied to the source. `classes`: of the labels,
  /// for ops that mix them.
  Plan(const std::vector<OpSpec>& chain, const Source& source, const OutputOptions& output,
       const PlanOptions& options, int classes = 0);

  std::unique_ptr<Scratch> make_scratch() const override;
  const SampleSpec& output() const override { return spec_; }
  int full_copies() const override { return full_copies_; }
  void run(const SampleKey& key, PixelSource& source, std::byte* out,
           Scratch& scratch) const override;
  /// The same, noting what was done.
  void run(const SampleKey& key, PixelSource& source, std::byte* out, Scratch& scratch,
           Trace* trace) const;

  int soft_classes() const override { return mixers_.empty() ? 0 : classes_; }
  void mix(const SampleKey& key, std::byte* first, std::byte* second, float* first_labels,
           float* second_labels, Scratch& scratch) const override;

 private:
  struct Op {
    std::uint32_t id;  ///< keys the draws
    std::string name;
    std::unique_ptr<plugins::Unit> unit;
  };

  std::vector<Op> ops_;
  std::vector<Op> mixers_;  ///< ops on batches, behind all others
  SampleSpec spec_;
  Store store_;
  PlanOptions options_;
  int classes_;
  int full_copies_ = 0;
};

}  // namespace millrace::augment
