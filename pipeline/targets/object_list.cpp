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
  objects.key_points.resize(3 * objects.points * count);
  objects.masks.resize(objects.mask_bytes * count);
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
  copy(from.key_points, to.key_points, 3 * to.points);
  copy(from.masks, to.masks, to.mask_bytes);
  end_sample(to);
}

}  // namespace millrace::pipeline
