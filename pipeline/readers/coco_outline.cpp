#include "pipeline/readers/coco_outline.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "millrace/error.h"

namespace millrace::pipeline {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxRunPixels = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void reject(const std::string& why) { throw DataError("segmentation " + why); }

std::vector<float> polygon_of(const Json& json) {
  if (!json.is_array()) reject("is no list of polygons");
  if (json.size() < 6 || json.size() % 2 != 0)
    reject(
        fmt::format("has a polygon of {} numbers, not x and y of at least 3 corners", json.size()));
  std::vector<float> points;
  for (const Json& number : json) {
    if (!number.is_number() ||
        !(std::abs(number.get<double>()) <= std::numeric_limits<float>::max()))
      reject("has a polygon of something else than numbers");
    points.push_back(number.get<float>());
  }
  return points;
}

/// Unpacks runs: each is a number of 5-bit digits in characters from '0' on, the lowest first, of
/// which all but the last have the sixth bit set. From the fourth on, they are differences to the
/// run two before.
std::vector<std::int64_t> unpacked(const std::string& text) {
  std::vector<std::int64_t> runs;
  for (std::size_t i = 0; i < text.size();) {
    std::int64_t run = 0;
    int shift = 0, digit = 0;
    do {
      digit = static_cast<unsigned char>(i < text.size() ? text[i] : 0) - '0';
      ++i;
      if (digit < 0 || digit > 63 || shift > 35) reject("has damaged counts");
      run |= std::int64_t{digit & 31} << shift;
      shift += 5;
    } while ((digit & 32) != 0);
    if ((digit & 16) != 0) run -= std::int64_t{1} << shift;
    if (runs.size() > 2) run += runs[runs.size() - 2];
    if (runs.size() == kMaxOutlineNumbers) reject("is too long");
    runs.push_back(run);
  }
  return runs;
}

void read_runs(const Json& json, CocoOutline& outline) {
  const auto whole = [](const Json& number) {
    if (!number.is_number_integer()) reject("has counts or a size that are no whole numbers");
    return number.get<std::int64_t>();
  };
  if (!json.contains("size") || !json.contains("counts") || !json["size"].is_array() ||
      json["size"].size() != 2)
    reject("is neither a list of polygons nor counts with a size");
  const std::int64_t height = whole(json["size"][0]), width = whole(json["size"][1]);
  if (height < 1 || width < 1 || height > kMaxRunPixels || width > kMaxRunPixels / height)
    reject(fmt::format("is for an image of {}x{} pixels", width, height));
  const Json& counts = json["counts"];
  std::vector<std::int64_t> runs;
  if (counts.is_string()) {
    runs = unpacked(counts.get_ref<const std::string&>());
  } else if (counts.is_array()) {
    for (const Json& number : counts) runs.push_back(whole(number));
  } else {
    reject("has counts that are neither numbers nor text");
  }
  std::int64_t left = height * width;
  for (const std::int64_t run : runs) {
    if (run < 0 || run > left) reject("has counts that do not fit its size");
    left -= run;
    outline.runs.push_back(static_cast<std::uint32_t>(run));
  }
  if (left > 0) reject("has counts that do not fill its size");
  outline.size = Size{static_cast<int>(width), static_cast<int>(height)};
}

}  // namespace

void CocoOutline::append_to(Outlines& outlines) const {
  for (const std::vector<float>& polygon : polygons) {
    outlines.points.insert(outlines.points.end(), polygon.begin(), polygon.end());
    outlines.polygon_ends.push_back(outlines.points.size());
  }
  outlines.runs.insert(outlines.runs.end(), runs.begin(), runs.end());
  outlines.ends.push_back({outlines.polygon_ends.size(), outlines.runs.size()});
}

CocoOutline parse_outline(const Json& json) {
  CocoOutline outline;
  if (json.is_object()) {
    read_runs(json, outline);
    return outline;
  }
  if (!json.is_array() || json.empty()) reject("is neither polygons nor counts with a size");
  for (const Json& polygon : json) outline.polygons.push_back(polygon_of(polygon));
  return outline;
}

}  // namespace millrace::pipeline
