// The compiled chain of augmentations: the Transform that the loader runs on every sample.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "augment/plan/store.h"
#include "augment/plan/trace.h"
#include "augment/plan/warp_map.h"
#include "base/private_api.h"
#include "millrace/error.h"
#include "millrace/plan.h"
#include "plugins/host/unit.h"

namespace millrace::augment {

struct PlanScratch;

/// Thrown if a chain does not fit images of the source's size; it may fit others.
struct MILLRACE_PRIVATE_API SizeMismatch : UsageError {
  using UsageError::UsageError;
  ~SizeMismatch() override;
};

class MILLRACE_PRIVATE_API Plan final : public Transform {
 public:
  /// Compiles the chain. `classes` is the number of labels, for ops that mix them. Throws
  /// UsageError if the chain cannot be applied to the source.
  Plan(const std::vector<OpSpec>& chain, const Source& source, const OutputOptions& output,
       const PlanOptions& options, int classes = 0);

  std::unique_ptr<Scratch> make_scratch() const override;
  const SampleSpec& output() const override { return spec_; }
  int full_copies() const override { return full_copies_; }
  void run(const SampleKey& key, PixelSource& source, std::byte* out,
           Scratch& scratch) const override;
  /// Runs the chain and records each step in `trace`, and where pixels went in `map`, unless they
  /// are null.
  void run(const SampleKey& key, PixelSource& source, std::byte* out, Scratch& scratch,
           Trace* trace, WarpMap* map = nullptr) const;

  int soft_classes() const override { return mixers_.empty() ? 0 : classes_; }
  int group() const override { return group_; }
  void mix(const SampleKey& key, const Neighbours& batch, Scratch& scratch) const override;
  /// Mixes the samples, and records in `trace` what each op does to the group of sample `traced`.
  void mix(const SampleKey& key, const Neighbours& batch, Scratch& scratch, Trace* trace,
           std::size_t traced) const;
  /// Returns the name of the first op that works on whole batches, or "".
  const std::string& whole_batch_op() const { return whole_batch_op_; }

 private:
  struct Op {
    std::uint32_t id;  ///< keys the draws
    std::string name;
    std::unique_ptr<plugins::Unit> unit;
  };

  std::vector<Op> ops_;
  /// Makes group_ a multiple of `group`, that of `op`.
  void add_group(std::int32_t group, const std::string& op);
  /// Mixes one group of `op`, whose samples and labels the scratch memory lists.
  void mix_group(const Op& op, const SampleKey& key, PlanScratch& scratch, Trace* trace) const;

  std::vector<Op> mixers_;  ///< ops on batches, behind all others
  int group_ = 1;           ///< least common multiple of the mixers' groups
  std::string whole_batch_op_;
  SampleSpec spec_;
  Store store_;
  PlanOptions options_;
  int classes_;
  int full_copies_ = 0;
};

}  // namespace millrace::augment
