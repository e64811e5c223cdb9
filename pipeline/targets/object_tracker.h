// Moves the objects of a sample along the trail that its pixels took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/private_api.h"
#include "millrace/annotations.h"
#include "millrace/transform.h"
#include "pipeline/targets/flip_pairs.h"
#include "pipeline/targets/tracked_box.h"

namespace millrace::pipeline {

/// One thread's working memory. It grows with the most objects of an image, then stays.
class MILLRACE_PRIVATE_API ObjectTracker {
 public:
  /// Appends to `to`, as those of its open sample, the objects of the sample at `index` that are
  /// left in an output of size `output`. `image` is the size of the sample's image. Throws
  /// DataError if the annotations are for an image of another size.
  void track(const Annotations& annotations, const TargetOptions& options, std::uint64_t index,
             Size image, const Trail& trail, Size output, Objects& to);

 private:
  struct TrackedPoint {
    Point at;
    float visibility;
  };

  void load(const Annotations& annotations, std::uint64_t index, Size image);
  void follow(const millrace_warp& warp);
  void add_points(std::size_t object, const FlipPairs& pairs, const TargetOptions& options,
                  Size output, Objects& to);

  std::vector<TrackedBox> boxes_;
  std::vector<TrackedPoint> points_;  ///< as many per box as the annotations have
  bool mirrored_ = false;
};

}  // namespace millrace::pipeline
