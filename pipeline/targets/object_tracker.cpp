// Moves, filters and writes the objects of samples.
#include "pipeline/targets/object_tracker.h"

#include <fmt/format.h>

#include <utility>

#include "millrace/error.h"
#include "pipeline/targets/object_list.h"

namespace millrace::pipeline {
namespace {

/// Returns whether a map turns the image over, as flips do.
bool mirrors(const Homography& m) {
  const double determinant = m[0] * (m[4] * m[8] - m[5] * m[7]) -
                             m[1] * (m[3] * m[8] - m[5] * m[6]) +
                             m[2] * (m[3] * m[7] - m[4] * m[6]);
  return (determinant < 0) != (m[8] < 0);
}

}  // namespace

void ObjectTracker::load(const Annotations& annotations, std::uint64_t index, Size image) {
  const double x_unit = annotations.relative ? image.width : 1;
  const double y_unit = annotations.relative ? image.height : 1;
  const std::size_t begin = annotations.begin(index), end = annotations.ends[index];
  boxes_.clear();
  points_.clear();
  mirrored_ = false;
  for (std::size_t i = begin; i < end; ++i) {
    const Box& box = annotations.boxes[i];
    boxes_.push_back({box.x0 * x_unit, box.y0 * y_unit, box.x1 * x_unit, box.y1 * y_unit});
  }
  for (std::size_t i = begin * annotations.points; i < end * annotations.points; ++i) {
    const KeyPoint& point = annotations.key_points[i];
    points_.push_back({{point.x * x_unit, point.y * y_unit}, point.visibility});
  }
}

void ObjectTracker::follow(const millrace_warp& warp) {
  const Homography map = forward_map(warp);
  mirrored_ ^= mirrors(map);
  for (TrackedBox& box : boxes_) box.follow(warp, map);
  const Rect output{0, 0, warp.output.width, warp.output.height};
  for (TrackedPoint& point : points_) {
    const bool shown = is_inside(point.at, warp.window);
    point.at = moved(map, point.at);
    if (!shown || !is_inside(point.at, output)) point.visibility = 0;
  }
}

void ObjectTracker::add_points(std::size_t object, const FlipPairs& pairs,
                               const TargetOptions& options, Size output, Objects& to) {
  TrackedPoint* const points = points_.data() + object * to.points;
  if (mirrored_)
    for (const auto& [left, right] : pairs) std::swap(points[left], points[right]);
  for (std::size_t i = 0; i < to.points; ++i)
    append_point(points[i].at, points[i].visibility, options, output, to);
}

void ObjectTracker::track(const Annotations& annotations, const TargetOptions& options,
                          std::uint64_t index, Size image, const Trail& trail, Size output,
                          Objects& to) {
  if (!annotations.relative && !(annotations.sizes[index] == image))
    throw DataError(
        fmt::format("its annotations are for an image of {}x{}, and it has {}x{} pixels",
                    annotations.sizes[index].width, annotations.sizes[index].height, image.width,
                    image.height),
        "annotate the image as it is, turned as its EXIF orientation says");
  load(annotations, index, image);
  for (const millrace_warp& warp : trail.warps) follow(warp);
  const FlipPairs& pairs = options.flip_pairs.empty() ? annotations.flip_pairs : options.flip_pairs;
  for (std::size_t i = 0; i < boxes_.size(); ++i) {
    const TrackedBox& box = boxes_[i];
    if (!is_left(box, options)) continue;
    append_box(box, options, output, to);
    to.classes.push_back(annotations.classes[annotations.begin(index) + i]);
    to.origins.push_back(static_cast<std::int64_t>(i));
    to.samples.push_back(static_cast<std::int64_t>(index));
    to.weights.push_back(1);
    to.visibilities.push_back(static_cast<float>(box.visible));
    add_points(i, pairs, options, output, to);
  }
}

}  // namespace millrace::pipeline
