// Strokes of the ten digits and a soft pen.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "base/rng.h"
#include "millrace/error.h"
#include "tools/data/data.h"

namespace millrace::tools {
namespace {

struct Point {
  double x, y;
};
using Stroke = std::vector<Point>;  ///< points on a smooth curve
using Glyph = std::vector<Stroke>;

/// Returns handwritten forms of each digit, in a unit square with y downwards.
const std::array<std::vector<Glyph>, 10>& glyphs() {
  static const std::array<std::vector<Glyph>, 10> all{{
      {{{{.52, .10}, {.28, .26}, {.22, .58}, {.44, .90}, {.72, .70}, {.75, .34}, {.50, .10}}},
       {{{.60, .14}, {.34, .20}, {.25, .55}, {.46, .88}, {.70, .62}, {.66, .26}, {.46, .12}}}},
      {{{{.52, .10}, {.50, .90}}},
       {{{.34, .28}, {.54, .10}}, {{.54, .10}, {.52, .90}}},
       {{{.34, .28}, {.54, .10}}, {{.54, .10}, {.52, .88}}, {{.32, .89}, {.72, .88}}}},
      {{{{.25, .30}, {.42, .11}, {.68, .18}, {.66, .42}, {.26, .88}}, {{.26, .88}, {.78, .86}}},
       {{{.26, .24},
         {.52, .10},
         {.70, .28},
         {.56, .58},
         {.30, .84},
         {.24, .74},
         {.42, .72},
         {.78, .90}}}},
      {{{{.26, .16}, {.58, .10}, {.70, .27}, {.42, .46}},
        {{.42, .46}, {.74, .60}, {.62, .86}, {.22, .82}}},
       {{{.26, .12}, {.72, .12}},
        {{.72, .12}, {.44, .44}},
        {{.44, .44}, {.74, .60}, {.58, .89}, {.24, .80}}}},
      {{{{.32, .12}, {.24, .52}}, {{.24, .52}, {.78, .50}}, {{.66, .16}, {.60, .90}}},
       {{{.62, .10}, {.20, .62}}, {{.20, .62}, {.80, .60}}, {{.62, .10}, {.61, .90}}}},
      {{{{.72, .12}, {.33, .13}},
        {{.33, .13}, {.29, .46}},
        {{.29, .46}, {.58, .42}, {.73, .64}, {.52, .89}, {.22, .82}}},
       {{{.70, .14}, {.36, .12}, {.30, .42}, {.60, .44}, {.68, .72}, {.46, .88}, {.24, .80}}}},
      {{{{.64, .10}, {.36, .38}, {.27, .70}, {.48, .90}, {.70, .72}, {.54, .54}, {.30, .68}}},
       {{{.48, .08}, {.32, .48}, {.32, .80}, {.56, .90}, {.68, .68}, {.50, .56}, {.32, .74}}}},
      {{{{.22, .14}, {.76, .13}}, {{.76, .13}, {.42, .90}}},
       {{{.24, .14}, {.74, .14}}, {{.74, .14}, {.46, .90}}, {{.38, .52}, {.70, .49}}},
       {{{.24, .26}, {.26, .14}}, {{.26, .14}, {.75, .12}}, {{.75, .12}, {.56, .46}, {.48, .90}}}},
      {{{{.66, .18},
         {.44, .11},
         {.31, .27},
         {.50, .47},
         {.69, .70},
         {.50, .90},
         {.29, .72},
         {.50, .47},
         {.68, .28},
         {.64, .16}}},
       {{{.50, .10}, {.32, .27}, {.50, .46}, {.66, .27}, {.50, .10}},
        {{.50, .46}, {.28, .68}, {.50, .90}, {.70, .68}, {.50, .46}}}},
      {{{{.68, .28}, {.48, .10}, {.31, .30}, {.48, .50}, {.68, .28}}, {{.68, .28}, {.60, .90}}},
       {{{.66, .20},
         {.42, .12},
         {.30, .36},
         {.52, .50},
         {.68, .24},
         {.68, .60},
         {.44, .90},
         {.28, .80}}}},
  }};
  return all;
}

/// Returns an approximately normal number from -3 to 3 with variance 1/2.
double bell(Draw& draw) {
  double sum = draw.uniform();  // separate statements: operands of a sum have no order
  sum += draw.uniform();
  sum += draw.uniform();
  return 2 * (sum - 1.5);
}

/// Maps the unit square to pixels: scale, slant, rotation, shift.
struct Placement {
  double xx, xy, yx, yy, x0, y0;

  explicit Placement(Draw& draw) {
    const double width = draw.uniform(15, 24), height = draw.uniform(17, 24);
    const double slant = .22 * bell(draw);
    const double t = .09 * bell(draw);  // tangent of half the angle
    const double cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
    xx = width * cosine;
    xy = height * (slant * cosine - sine);
    yx = width * sine;
    yy = height * (slant * sine + cosine);
    x0 = kDigitSide / 2. + 1.2 * bell(draw) - (xx + xy) / 2;
    y0 = kDigitSide / 2. + 1.2 * bell(draw) - (yx + yy) / 2;
  }
  Point operator()(Point p) const { return {x0 + xx * p.x + xy * p.y, y0 + yx * p.x + yy * p.y}; }
};

/// Squared distance from every pixel's centre to the nearest stroke, within the pen's reach.
class Canvas {
 public:
  static constexpr double kReach = 4;  ///< pixels; more than any pen's radius

  Canvas() { nearest_.fill(kReach * kReach); }

  void line(Point a, Point b) {
    const int x0 = first(std::min(a.x, b.x)), x1 = last(std::max(a.x, b.x));
    const int y0 = first(std::min(a.y, b.y)), y1 = last(std::max(a.y, b.y));
    const double dx = b.x - a.x, dy = b.y - a.y;
    const double scale = 1 / std::max(dx * dx + dy * dy, 1e-9);
    for (int y = y0; y < y1; ++y)
      for (int x = x0; x < x1; ++x) {
        const double px = x + .5 - a.x, py = y + .5 - a.y;
        const double along = std::clamp((px * dx + py * dy) * scale, 0., 1.);
        const double ex = px - along * dx, ey = py - along * dy;
        double& nearest = nearest_[static_cast<std::size_t>(y * kDigitSide + x)];
        nearest = std::min(nearest, ex * ex + ey * ey);
      }
  }

  /// Draws a Catmull-Rom spline through the points as short lines.
  void curve(const std::vector<Point>& p) {
    for (std::size_t i = 0; i + 1 < p.size(); ++i) {
      const Point before = p[i > 0 ? i - 1 : i], after = p[std::min(i + 2, p.size() - 1)];
      Point from = p[i];
      const int pieces = p.size() == 2 ? 1 : 5;
      for (int piece = 1; piece <= pieces; ++piece) {
        const double t = static_cast<double>(piece) / pieces;
        const Point to{spline(before.x, p[i].x, p[i + 1].x, after.x, t),
                       spline(before.y, p[i].y, p[i + 1].y, after.y, t)};
        line(from, to);
        from = to;
      }
    }
  }

  double distance(std::size_t pixel) const { return std::sqrt(nearest_[pixel]); }

 private:
  static int first(double x) { return std::clamp(static_cast<int>(x - kReach), 0, kDigitSide); }
  static int last(double x) { return std::clamp(static_cast<int>(x + kReach) + 1, 0, kDigitSide); }
  static double spline(double a, double b, double c, double d, double t) {
    return b + .5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
  }

  std::array<double, kDigitPixels> nearest_;
};

}  // namespace

void draw_digit(int label, Draw& draw, std::span<std::uint8_t, kDigitPixels> pixels) {
  const auto& ways = glyphs()[static_cast<std::size_t>(label)];
  const Glyph& glyph = ways[draw.integer(static_cast<std::uint32_t>(ways.size()))];
  const Placement place(draw);
  const double shake = draw.uniform(.010, .055);

  Canvas canvas;
  std::vector<Point> points;
  for (const Stroke& stroke : glyph) {
    points.clear();
    for (const Point& point : stroke)
      points.push_back(place({point.x + shake * bell(draw), point.y + shake * bell(draw)}));
    canvas.curve(points);
  }
  // Adds a slip of the pen now and then.
  if (draw.chance(.12)) {
    const Point at{draw.uniform(2, 26), draw.uniform(2, 26)};
    canvas.line(at, {at.x + 2.5 * bell(draw), at.y + 2.5 * bell(draw)});
  }

  const double radius = draw.uniform(.55, 1.9), softness = draw.uniform(.7, 1.5);
  const double ink = draw.uniform(170, 275), grain = draw.uniform(4, 34);
  for (std::size_t pixel = 0; pixel < pixels.size(); ++pixel) {
    const double cover = std::clamp((radius - canvas.distance(pixel)) / softness + .5, 0., 1.);
    const double noise = cover > 0 ? grain * (draw.uniform() - .5) : 0;
    pixels[pixel] = static_cast<std::uint8_t>(std::clamp(cover * ink + noise, 0., 255.));
  }
}

// Draws digits in parallel and writes IDX files.
namespace {

struct Split {
  const char* prefix;
  std::uint32_t count;
  std::uint32_t epoch;  ///< separates the random draws of the two splits
};

void append_big_endian(std::vector<std::uint8_t>& bytes, std::uint32_t number) {
  for (const int shift : {24, 16, 8, 0})
    bytes.push_back(static_cast<std::uint8_t>(number >> shift));
}

std::string images_name(const Split& split) {
  return std::string(split.prefix) + "-images-idx3-ubyte";
}
std::string labels_name(const Split& split) {
  return std::string(split.prefix) + "-labels-idx1-ubyte";
}

void make_split(const DigitsOptions& options, const Split& split, const Progress& progress) {
  std::vector<std::uint8_t> images, labels;
  for (const std::uint32_t number : {0x0803u, split.count, 28u, 28u})
    append_big_endian(images, number);
  for (const std::uint32_t number : {0x0801u, split.count}) append_big_endian(labels, number);
  const std::size_t first_image = images.size(), first_label = labels.size();
  images.resize(first_image + std::size_t{split.count} * kDigitPixels);
  labels.resize(first_label + split.count);

  parallel_for(
      split.count, 500, options.threads, progress, [&](std::uint64_t begin, std::uint64_t end) {
        for (std::uint64_t sample = begin; sample < end; ++sample) {
          Draw draw(base::stream({options.seed, split.epoch, sample}, base::op_id("digits")));
          const auto label = static_cast<int>(draw.integer(10));
          labels[first_label + sample] = static_cast<std::uint8_t>(label);
          std::uint8_t* image = images.data() + first_image + sample * kDigitPixels;
          draw_digit(label, draw, std::span<std::uint8_t, kDigitPixels>(image, kDigitPixels));
        }
      });
  write_or_match(options.path + "/" + images_name(split), images, options.force);
  write_or_match(options.path + "/" + labels_name(split), labels, options.force);
}

}  // namespace

void make_digits(const DigitsOptions& options) {
  if (options.train == 0 || options.test == 0)
    throw UsageError("a data set needs at least one image per split", "give a count above 0");
  const std::array<Split, 2> splits{{{"train", options.train, 0}, {"t10k", options.test, 1}}};
  std::vector<std::string> names;
  for (const Split& split : splits)
    names.insert(names.end(), {images_name(split), labels_name(split)});
  prepare_folder(options.path, names, options.force);

  std::uint64_t before = 0;
  for (const Split& split : splits) {
    make_split(options, split, [&](std::uint64_t done, std::uint64_t) {
      if (options.progress) options.progress(before + done, options.train + options.test);
    });
    before += split.count;
  }
}

}  // namespace millrace::tools
