// Appends and drops objects of samples.
#include "pipeline/targets/object_list.h"

#include <algorithm>
#include <cstdint>

namespace millrace::pipeline {

std::vector<Objects> range_lists(const Annotations& annotations, std::size_t samples,
                                 std::size_t mask_bytes) {
  const std::size_t twice_mean = 2 * annotations.boxes.size() / annotations.ends.size() + 1;
  std::vector<Objects> lists(samples);
  for (std::size_t i = 0; i < samples; ++i) {
    // Before the i-th of equal ranges stand i others of as many samples.
    const std::size_t most = samples / std::max<std::size_t>(i, 1);
    const std::size_t count = most * twice_mean;
    lists[i].points = annotations.points;
    lists[i].mask_bytes = mask_bytes;
    lists[i].offsets.reserve(most + 1);
    lists[i].boxes.reserve(4 * count);
    lists[i].classes.reserve(count);
    lists[i].origins.reserve(count);
    lists[i].samples.reserve(count);
    lists[i].weights.reserve(count);
    lists[i].visibilities.reserve(count);
    lists[i].key_points.reserve(3 * annotations.points * count);
  }
  return lists;
}

void clear(Objects& objects) {
  constexpr std::size_t kSmall = 16 << 20;
  if (objects.masks.capacity() > std::max(kSmall, 4 * objects.masks.size()))
    objects.masks = std::vector<std::uint8_t>();
  objects.offsets.assign(1, 0);
  drop_open(objects);
}

void end_sample(Objects& objects) {
  objects.offsets.push_back(static_cast<std::int64_t>(objects.classes.size()));
}

void drop_open(Objects& objects) {
  const auto count = static_cast<std::size_t>(objects.offsets.back());
  objects.boxes.resize(4 * count);
  objects.classes.resize(count);
  objects.origins.resize(count);
  objects.samples.resize(count);
  objects.weights.resize(count);
  objects.visibilities.resize(count);
  objects.key_points.resize(3 * objects.points * count);
  objects.masks.resize(objects.mask_bytes * count);
}

bool is_left(const TrackedBox& box, const TargetOptions& options) {
  const double area = box.area();
  return area > 0 && area >= options.min_area && box.visible >= options.min_visibility;
}

void append_box(const TrackedBox& box, const TargetOptions& options, Size output, Objects& to) {
  const double x_unit = options.relative ? output.width : 1;
  const double y_unit = options.relative ? output.height : 1;
  const auto add = [&](double x, double y) {
    to.boxes.push_back(static_cast<float>(x / x_unit));
    to.boxes.push_back(static_cast<float>(y / y_unit));
  };
  if (options.format == BoxFormat::cxcywh)
    add((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2);
  else
    add(box.x0, box.y0);
  if (options.format == BoxFormat::xyxy)
    add(box.x1, box.y1);
  else
    add(box.x1 - box.x0, box.y1 - box.y0);
}

void append_point(Point at, float visibility, const TargetOptions& options, Size output,
                  Objects& to) {
  const bool known = visibility > 0;
  const double x = at.x / (options.relative ? output.width : 1);
  const double y = at.y / (options.relative ? output.height : 1);
  to.key_points.push_back(known ? static_cast<float>(x) : 0);
  to.key_points.push_back(known ? static_cast<float>(y) : 0);
  to.key_points.push_back(visibility);
}

void append_sample(const Objects& from, std::size_t index, Objects& to) {
  const auto copy = [begin = from.offsets[index], end = from.offsets[index + 1]](
                        const auto& source, auto& target, std::size_t each) {
    const auto width = static_cast<std::int64_t>(each);
    target.insert(target.end(), source.begin() + begin * width, source.begin() + end * width);
  };
  copy(from.boxes, to.boxes, 4);
  copy(from.classes, to.classes, 1);
  copy(from.origins, to.origins, 1);
  copy(from.samples, to.samples, 1);
  copy(from.weights, to.weights, 1);
  copy(from.visibilities, to.visibilities, 1);
  copy(from.key_points, to.key_points, 3 * to.points);
  copy(from.masks, to.masks, to.mask_bytes);
  end_sample(to);
}

}  // namespace millrace::pipeline
