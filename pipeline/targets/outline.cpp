// Fills polygons and runs.
#include "pipeline/targets/outline.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace millrace::pipeline {
namespace {

constexpr std::uint8_t kInside = 1, kEdge = 2;

/// Returns the first of `count` pixels whose centre is at `position` or behind it.
int first_from(double position, int count) {
  return static_cast<int>(std::ceil(std::clamp<double>(position - 0.5, 0, count)));
}

/// Marks the pixels of each row behind which an edge from (x0, y0) to (x1, y1) has been crossed.
void mark_edge(double x0, double y0, double x1, double y1, Size size, std::uint8_t* pixels) {
  if (y0 > y1) {
    std::swap(x0, x1);
    std::swap(y0, y1);
  }
  const int end = first_from(y1, size.height);
  const double slope = (x1 - x0) / (y1 - y0);
  for (int y = first_from(y0, size.height); y < end; ++y) {
    const int x = first_from(x0 + (y + 0.5 - y0) * slope, size.width);
    if (x < size.width) pixels[std::ptrdiff_t{y} * size.width + x] ^= kEdge;
  }
}

/// Adds the pixels inside a polygon of `points`, as x and y, to those inside others.
void fill_polygon(std::span<const float> points, Size size, std::uint8_t* pixels) {
  double low = size.height, high = 0;
  for (std::size_t i = 0; i < points.size(); i += 2) {
    const std::size_t next = (i + 2) % points.size();
    mark_edge(points[i], points[i + 1], points[next], points[next + 1], size, pixels);
    low = std::min<double>(low, points[i + 1]);
    high = std::max<double>(high, points[i + 1]);
  }
  const int end = first_from(high, size.height);
  for (int y = first_from(low, size.height); y < end; ++y) {
    std::uint8_t* const row = pixels + std::ptrdiff_t{y} * size.width;
    std::uint8_t inside = 0;
    for (int x = 0; x < size.width; ++x) {
      inside ^= row[x] >> 1;
      row[x] = (row[x] & kInside) | inside;
    }
  }
}

/// Fills every second run of pixels down the columns, which cover the image.
void fill_runs(std::span<const std::uint32_t> runs, Size size, std::uint8_t* pixels) {
  std::uint64_t at = 0;
  const auto height = static_cast<std::uint64_t>(size.height);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::uint64_t end = at + runs[i];
    for (; i % 2 == 1 && at < end; ++at)
      pixels[at % height * static_cast<std::uint64_t>(size.width) + at / height] = kInside;
    at = end;
  }
}

/// Returns an object's numbers in a list of `values`.
template <class Value>
std::span<const Value> part(const std::vector<Value>& values, std::uint64_t begin,
                            std::uint64_t end) {
  return std::span(values).subspan(begin, end - begin);
}

}  // namespace

void fill_outline(const Outlines& outlines, std::size_t index, Size size, std::uint8_t* pixels) {
  std::memset(pixels, 0,
              static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height));
  const Outlines::Ends begin = outlines.begin(index), end = outlines.ends[index];
  for (std::uint64_t i = begin.polygons; i < end.polygons; ++i)
    fill_polygon(
        part(outlines.points, i > 0 ? outlines.polygon_ends[i - 1] : 0, outlines.polygon_ends[i]),
        size, pixels);
  fill_runs(part(outlines.runs, begin.runs, end.runs), size, pixels);
}

void append_outline(const Outlines& from, std::size_t index, Outlines& to) {
  const Outlines::Ends begin = from.begin(index), end = from.ends[index];
  for (std::uint64_t i = begin.polygons; i < end.polygons; ++i) {
    const auto points =
        part(from.points, i > 0 ? from.polygon_ends[i - 1] : 0, from.polygon_ends[i]);
    to.points.insert(to.points.end(), points.begin(), points.end());
    to.polygon_ends.push_back(to.points.size());
  }
  const auto runs = part(from.runs, begin.runs, end.runs);
  to.runs.insert(to.runs.end(), runs.begin(), runs.end());
  to.ends.push_back({to.polygon_ends.size(), to.runs.size()});
}

}  // namespace millrace::pipeline
