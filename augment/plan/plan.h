// The compiled chain of augmentations: the Transform that the loader runs on every sample, and a
// trace of its steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "augment/plan/pasting.h"
#include "augment/plan/store.h"
#include "base/private_api.h"
#include "millrace/error.h"
#include "millrace/millrace.h"
#include "millrace/millrace.hpp"
#include "millrace/plan.h"
#include "plugins/host/unit.h"

namespace millrace::augment {

/// A record of one sample's way through a plan, for `inspect`; not used in training.
struct Trace {
  /// A value that an op drew.
  struct Drawn {
    std::string op;
    std::string name;
    double value;
  };
  /// One traversal of pixels.
  struct Step {
    std::string what;              ///< "decode", "pass", "levels", an op's name
    std::vector<std::string> ops;  ///< ops folded into it
    std::string detail;            ///< "224x224, reduced by 1.62 x 1.49"
    std::int64_t ns = 0;           ///< its duration
  };

  std::vector<Drawn> drawn;
  std::vector<Step> steps;
};

/// Records the values that an op reports in a call, as long as it exists. Does nothing without a
/// trace.
class DrawListener {
 public:
  DrawListener(Trace* trace, const std::string& op, millrace_call& call)
      : trace_(trace), op_(op), call_(call) {
    if (trace_ == nullptr) return;
    call_.host = this;
    call_.report = [](millrace_call* from, const char* name, double value) {
      const auto& listener = *static_cast<const DrawListener*>(from->host);
      listener.trace_->drawn.push_back({listener.op_, name, value});
    };
  }
  ~DrawListener() { call_.report = nullptr; }
  DrawListener(const DrawListener&) = delete;
  DrawListener& operator=(const DrawListener&) = delete;

 private:
  Trace* trace_;
  const std::string& op_;
  millrace_call& call_;
};

struct PlanScratch;

/// Thrown if a chain does not fit images of the source's size; it may fit others.
struct MILLRACE_PRIVATE_API SizeMismatch : UsageError {
  using UsageError::UsageError;
  ~SizeMismatch() override;
};

class MILLRACE_PRIVATE_API Plan final : public Transform {
 public:
  /// Compiles the chain. `classes` is that of compile_plan(). Throws UsageError if the chain cannot
  /// be applied to the source.
  Plan(const std::vector<OpSpec>& chain, const Source& source, const OutputOptions& output,
       const PlanOptions& options, int classes = 0);

  /// Lets `plan` make the samples of `epoch` and of those behind it. Its samples are no larger than
  /// these. Call it in ascending order of epochs, the first of which is 0.
  void add_stage(std::uint32_t epoch, std::shared_ptr<const Plan> plan) {
    stages_.push_back({epoch, std::move(plan)});
  }
  const Plan& at(std::uint32_t epoch) const override;

  std::unique_ptr<Scratch> make_scratch() const override;
  const SampleSpec& output() const override { return spec_; }
  Depth depth() const override { return depth_; }
  int full_copies() const override { return full_copies_; }
  void run(const SampleKey& key, PixelSource& source, std::byte* out,
           Scratch& scratch) const override;
  void run_tracked(const SampleKey& key, PixelSource& source, std::byte* out, Scratch& scratch,
                   Trail& trail) const override;
  void move_mask(const Trail& trail, PixelSource& mask, std::uint8_t fill, std::uint8_t* out,
                 Scratch& scratch) const override;
  std::string untracked_op() const override;
  std::string blending_op() const override;
  std::string pasting_op() const override;
  /// Runs the chain and records each step in `trace`, and each warp in `trail`, unless they are
  /// null.
  void run(const SampleKey& key, PixelSource& source, std::byte* out, Scratch& scratch,
           Trace* trace, Trail* trail = nullptr) const;

  int soft_classes() const override { return mixers_.empty() ? 0 : std::max(classes_, 0); }
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
    Picker picker = nullptr;  ///< of an op that pastes objects
  };

  /// A plan and its first epoch.
  struct Stage {
    std::uint32_t epoch;
    std::shared_ptr<const Plan> plan;
  };

  std::vector<Stage> stages_;  ///< of output.sizes; none: this plan makes all samples
  std::vector<Op> ops_;
  /// Makes group_ a multiple of `group`, that of `op`.
  void add_group(std::int32_t group, const std::string& op);
  /// Lists the samples [first, first + count) that are there in the scratch memory, as a group.
  void list_group(const Neighbours& batch, std::size_t first, std::size_t count,
                  PlanScratch& scratch) const;
  /// Mixes the group that the scratch memory lists, and appends its parts there if there is an
  /// observer.
  void mix_group(const Op& op, const SampleKey& key, const MixObserver* observer,
                 PlanScratch& scratch, Trace* trace) const;
  /// Pastes the objects that `op` picks in the group that the scratch memory lists, and notes them
  /// there.
  void paste_group(const Op& op, const SampleKey& key, const Objects& objects,
                   PlanScratch& scratch) const;
  /// Appends the parts of a group to those in the scratch memory, and returns the new ones.
  std::span<millrace_part> add_parts(const Op& op, const SampleKey& key,
                                     PlanScratch& scratch) const;
  millrace_sample form() const;

  std::vector<Op> mixers_;  ///< ops on batches, behind all others
  int group_ = 1;           ///< least common multiple of the mixers' groups
  std::string whole_batch_op_;
  SampleSpec spec_;
  Store store_;
  Depth depth_;
  PlanOptions options_;
  int classes_;
  int full_copies_ = 0;
};

}  // namespace millrace::augment
