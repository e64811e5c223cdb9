// Objects of samples that ops put together of parts of each other.
#pragma once

#include <cstdint>
#include <span>

#include "base/private_api.h"
#include "millrace/annotations.h"
#include "millrace/transform.h"

namespace millrace::pipeline {

/// Returns the options with which objects are tracked if they will be mixed: as edges in pixels.
/// Boxes that are too small already are left out, because no part enlarges them; hand_out() leaves
/// out those that parts have cut too small.
MILLRACE_PRIVATE_API TargetOptions before_mixing(const TargetOptions& options);

/// Fills `to` with the samples of `from` except those at the positions `without` (ascending), and
/// with those of their objects, and in that form, that `options` say.
MILLRACE_PRIVATE_API void hand_out(const Objects& from, const TargetOptions& options, Size size,
                                   std::span<const std::int64_t> without, Objects& to);

/// Lets the objects of a batch follow while Transform::mix() changes its samples.
class MILLRACE_PRIVATE_API ObjectMixer final : public MixObserver {
 public:
  /// `size` is that of a sample. `objects` are those of the batch, and a list to work with.
  ObjectMixer(Size size, Objects (&objects)[2]) : size_(size), objects_(objects) {}
  void mixed(std::span<const millrace_part> parts) override;

 private:
  Size size_;
  Objects (&objects_)[2];
};

}  // namespace millrace::pipeline
