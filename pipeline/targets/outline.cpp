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

/// Returns the smallest rectangle that holds two, of which either may be empty.
Rect join(const Rect& a, const Rect& b) {
  if (a.x0 >= a.x1 || a.y0 >= a.y1) return b;
  if (b.x0 >= b.x1 || b.y0 >= b.y1) return a;
  return {std::min(a.x0, b.x0), std::min(a.y0, b.y0), std::max(a.x1, b.x1), std::max(a.y1, b.y1)};
}

/// Marks the pixels of each row behind which an edge from (x0, y0) to (x1, y1) has been crossed.
void mark_edge(double x0, double y0, double x1, double y1, Size size, std::uint8_t* pixels) {
  if (y0 > y1) {
    std::swap(x0, x1);
    std::swap(y0, y1);
  }
  const int end = first_from(y1, size.height);
  const double slope = (x1 - x0) / (y1 - y0), left = std::min(x0, x1), right = std::max(x0, x1);
  for (int y = first_from(y0, size.height); y < end; ++y) {
    // Rounding must not leave the polygon's rectangle.
    const double crossing = std::clamp(x0 + (y + 0.5 - y0) * slope, left, right);
    const int x = first_from(crossing, size.width);
    if (x < size.width) pixels[std::ptrdiff_t{y} * size.width + x] ^= kEdge;
  }
}

/// Adds the pixels inside a polygon of `points`, as x and y, to those inside others. Returns a
/// rectangle that holds them.
Rect fill_polygon(std::span<const float> points, Size size, std::uint8_t* pixels) {
  double left = size.width, right = 0, low = size.height, high = 0;
  for (std::size_t i = 0; i < points.size(); i += 2) {
    const std::size_t next = (i + 2) % points.size();
    mark_edge(points[i], points[i + 1], points[next], points[next + 1], size, pixels);
    left = std::min<double>(left, points[i]);
    right = std::max<double>(right, points[i]);
    low = std::min<double>(low, points[i + 1]);
    high = std::max<double>(high, points[i + 1]);
  }
  // The last edge of a row is marked on the pixel behind those inside.
  const Rect all{first_from(left, size.width), first_from(low, size.height),
                 std::min(first_from(right, size.width) + 1, size.width),
                 first_from(high, size.height)};
  for (int y = all.y0; y < all.y1; ++y) {
    std::uint8_t* const row = pixels + std::ptrdiff_t{y} * size.width;
    std::uint8_t inside = 0;
    for (int x = all.x0; x < all.x1; ++x) {
      inside ^= row[x] >> 1;
      row[x] = (row[x] & kInside) | inside;
    }
  }
  return all;
}

/// Fills every second run of pixels down the columns, which cover the image. Returns a rectangle
/// that holds these runs.
Rect fill_runs(std::span<const std::uint32_t> runs, Size size, std::uint8_t* pixels) {
  Rect all{};
  const auto height = static_cast<std::uint64_t>(size.height);
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::uint64_t end = at + runs[i];
    while (i % 2 == 1 && at < end) {  // column by column
      const auto x = static_cast<int>(at / height), y = static_cast<int>(at % height);
      const int y1 = y + static_cast<int>(std::min(end - at, height - at % height));
      std::uint8_t* const column = pixels + x;
      for (int inside = y; inside < y1; ++inside)
        column[std::ptrdiff_t{inside} * size.width] = kInside;
      all = join(all, {x, y, x + 1, y1});
      at += static_cast<std::uint64_t>(y1 - y);
    }
    at = end;
  }
  return all;
}

/// Returns an object's numbers in a list of `values`.
template <class Value>
std::span<const Value> part(const std::vector<Value>& values, std::uint64_t begin,
                            std::uint64_t end) {
  return std::span(values).subspan(begin, end - begin);
}

}  // namespace

Rect fill_outline(const Outlines& outlines, std::size_t index, Size size, std::uint8_t* pixels) {
  const Outlines::Ends begin = outlines.begin(index), end = outlines.ends[index];
  Rect all = fill_runs(part(outlines.runs, begin.runs, end.runs), size, pixels);
  for (std::uint64_t i = begin.polygons; i < end.polygons; ++i) {
    const auto points =
        part(outlines.points, i > 0 ? outlines.polygon_ends[i - 1] : 0, outlines.polygon_ends[i]);
    all = join(all, fill_polygon(points, size, pixels));
  }
  return all;
}

void clear_pixels(const Rect& rectangle, Size size, std::uint8_t* pixels) {
  const auto width = static_cast<std::size_t>(std::max(rectangle.x1 - rectangle.x0, 0));
  for (int y = rectangle.y0; y < rectangle.y1; ++y)
    std::memset(pixels + std::ptrdiff_t{y} * size.width + rectangle.x0, 0, width);
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
