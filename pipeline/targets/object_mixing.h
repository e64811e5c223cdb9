// Objects of samples that ops put together of parts of each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/private_api.h"
#include "millrace/annotations.h"
#include "millrace/buffer.h"
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

/// Returns a mask that is 1 where those objects of a sample are whose place in `picked` is not 0,
/// and 0 elsewhere. It lies in `memory`.
const std::uint8_t* cut_out(const Objects& objects, std::size_t sample,
                            std::span<const std::uint8_t> picked, Buffer& memory);

/// Lets the objects of a batch follow while Transform::mix() changes its samples.
class MILLRACE_PRIVATE_API ObjectMixer final : public MixObserver {
 public:
  /// `size` is that of a sample. `objects` are those of the batch, and a list to work with, as
  /// `cutout` is memory.
  ObjectMixer(Size size, Objects (&objects)[2], Buffer& cutout)
      : size_(size), objects_(objects), cutout_(cutout) {}
  const Objects& objects() const override { return objects_[0]; }
  void mixed(std::span<const millrace_part> parts) override;
  void pasted(std::span<const millrace_part> parts, std::span<const std::uint8_t> picked) override;

 private:
  /// Appends what is left of a sample's objects where `cutout` is 0.
  void append_uncovered(std::size_t sample, const std::uint8_t* cutout);
  /// Appends those objects of a sample that were picked, as they are.
  void append_picked(std::size_t sample, std::span<const std::uint8_t> picked);

  Size size_;
  Objects (&objects_)[2];
  Buffer& cutout_;
};

}  // namespace millrace::pipeline
