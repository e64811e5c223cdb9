// Noise, shapes and colours of generated photographs.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "millrace/error.h"
#include "tools/data/data.h"

namespace millrace::tools {
namespace {

using Colour = std::array<float, 3>;

/// Value noise: random heights on a lattice of `cell` pixels, interpolated smoothly.
class Noise {
 public:
  Noise(Size size, float cell, Draw& draw)
      : cell_(cell), columns_(static_cast<int>(static_cast<float>(size.width) / cell) + 2) {
    const int rows = static_cast<int>(static_cast<float>(size.height) / cell) + 2;
    heights_.resize(static_cast<std::size_t>(columns_ * rows));
    for (float& height : heights_) height = static_cast<float>(draw.uniform(-1, 1));
  }

  /// Adds `amplitude` times the noise of row `y` to `row`.
  void add(int y, float amplitude, std::vector<float>& row) const {
    const float v = static_cast<float>(y) / cell_;
    const int cell_row = static_cast<int>(v);
    const float fy = smooth(v - static_cast<float>(cell_row));
    const float* above = heights_.data() + cell_row * columns_;
    const float* below = above + columns_;
    for (std::size_t x = 0; x < row.size(); ++x) {
      const float u = static_cast<float>(x) / cell_;
      const int column = static_cast<int>(u);
      const float fx = smooth(u - static_cast<float>(column));
      const float top = above[column] + fx * (above[column + 1] - above[column]);
      const float bottom = below[column] + fx * (below[column + 1] - below[column]);
      row[x] += amplitude * (top + fy * (bottom - top));
    }
  }

 private:
  static float smooth(float t) { return t * t * (3 - 2 * t); }

  float cell_;
  int columns_;
  std::vector<float> heights_;
};

/// A shape between a disc (power 2) and nearly a rectangle (power 8), shaded from one side.
struct Shape {
  float x, y, width, height;
  bool boxy;
  Colour colour;

  /// Returns a value above 0 inside; about the distance to the edge in pixels.
  float depth(float px, float py) const {
    const float u = (px - x) / width, v = (py - y) / height;
    float uu = u * u, vv = v * v;
    if (boxy) {
      uu *= uu * uu;
      vv *= vv * vv;
    }
    return (1 - uu - vv) * .5f * std::min(width, height);
  }
};

Colour colour_around(const Colour& base, float spread, Draw& draw) {
  Colour colour{};
  for (std::size_t c = 0; c < 3; ++c)
    colour[c] = base[c] + spread * static_cast<float>(draw.uniform(-1, 1));
  return colour;
}

/// Returns a colour of a wheel without trigonometry: three tent functions a third of a turn apart.
Colour class_colour(int label, int classes) {
  Colour colour{};
  for (std::size_t c = 0; c < 3; ++c) {
    float turn =
        static_cast<float>(label) / static_cast<float>(classes) + static_cast<float>(c) / 3;
    turn -= static_cast<float>(static_cast<int>(turn));
    colour[c] = 60 + 130 * std::abs(2 * turn - 1);
  }
  return colour;
}

Size photo_size(Draw& draw) {
  const int longer = 400 + static_cast<int>(draw.integer(201));
  const int shorter = longer * (66 + static_cast<int>(draw.integer(18))) / 100;
  return draw.chance(.25) ? Size{shorter, longer} : Size{longer, shorter};
}

}  // namespace

Photo draw_photo(int label, int classes, Draw& draw) {
  Photo photo{photo_size(draw), {}};
  const auto width = static_cast<std::size_t>(photo.size.width);
  photo.pixels.resize(width * static_cast<std::size_t>(photo.size.height) * 3);

  const Colour base = class_colour(label, classes);
  const Colour top = colour_around(base, 40, draw), bottom = colour_around(base, 60, draw);
  std::vector<Shape> shapes;
  for (std::uint32_t count = 3 + draw.integer(9); count > 0; --count) {
    Shape shape{};
    shape.x = static_cast<float>(draw.uniform(0, photo.size.width));
    shape.y = static_cast<float>(draw.uniform(0, photo.size.height));
    shape.width = static_cast<float>(draw.uniform(12, 110));
    shape.height = static_cast<float>(draw.uniform(12, 110));
    shape.boxy = draw.chance(label % 2 == 0 ? .15 : .85);
    shape.colour = colour_around(base, 90, draw);
    shapes.push_back(shape);
  }
  // Octaves from clouds to film grain; their fall-off depends on the class.
  std::vector<Noise> octaves;
  std::vector<float> amplitudes;
  const float roughness = .72f + .03f * static_cast<float>(label % 4);
  float amplitude = static_cast<float>(draw.uniform(34, 56));
  for (const float cell : {96.f, 48.f, 24.f, 12.f, 6.f, 3.f, 1.5f}) {
    octaves.emplace_back(photo.size, cell, draw);
    amplitudes.push_back(amplitude);
    amplitude *= roughness;
  }
  const Noise tint(photo.size, 40, draw);

  std::vector<float> light(width), hue(width);
  for (int y = 0; y < photo.size.height; ++y) {
    std::fill(light.begin(), light.end(), 0.f);
    std::fill(hue.begin(), hue.end(), 0.f);
    for (std::size_t i = 0; i < octaves.size(); ++i) octaves[i].add(y, amplitudes[i], light);
    tint.add(y, 25, hue);
    const float down = static_cast<float>(y) / static_cast<float>(photo.size.height);
    std::uint8_t* out = photo.pixels.data() + static_cast<std::size_t>(y) * width * 3;
    for (std::size_t x = 0; x < width; ++x) {
      Colour colour{};
      for (std::size_t c = 0; c < 3; ++c) colour[c] = top[c] + down * (bottom[c] - top[c]);
      for (const Shape& shape : shapes) {
        const float depth = shape.depth(static_cast<float>(x), static_cast<float>(y));
        if (depth <= 0) continue;
        const float cover = std::min(depth, 1.f), shade = std::min(depth, 30.f) - 15;
        for (std::size_t c = 0; c < 3; ++c)
          colour[c] += cover * (shape.colour[c] + shade - colour[c]);
      }
      colour[0] += hue[x];
      colour[2] -= hue[x];
      for (std::size_t c = 0; c < 3; ++c)
        out[3 * x + c] = static_cast<std::uint8_t>(std::clamp(colour[c] + light[x], 0.f, 255.f));
    }
  }
  return photo;
}

// Draws photos in parallel and writes an image folder.
namespace {

/// Returns an image's path. Images rotate through the classes; of each class, every fifth image is
/// for test, starting with the first.
std::string name_of(std::uint64_t sample, int classes) {
  const std::uint64_t round = sample / static_cast<std::uint64_t>(classes);
  const std::uint64_t label = sample % static_cast<std::uint64_t>(classes);
  return fmt::format("{}/class{:03}/{:06}.jpg", round % 5 == 0 ? "test" : "train", label, round);
}

void check(const PhotosOptions& options) {
  if (options.classes < 1 || options.classes > 1000)
    throw UsageError(fmt::format("classes={} is not between 1 and 1000", options.classes),
                     "use 8 for a trial");
  if (options.quality < 1 || options.quality > 100)
    throw UsageError(fmt::format("quality={} is not between 1 and 100", options.quality),
                     "cameras use about 90");
  if (options.count < 2 * static_cast<std::uint32_t>(options.classes))
    throw UsageError(
        fmt::format("{} images are too few for {} classes", options.count, options.classes),
        "each class needs an image in train/ and one in test/");
}

}  // namespace

void make_photos(const PhotosOptions& options) {
  check(options);
  std::vector<std::string> names;
  for (std::uint64_t sample = 0; sample < options.count; ++sample)
    names.push_back(name_of(sample, options.classes));
  prepare_folder(options.path, names, options.force);
  for (const char* split : {"train", "test"})
    for (int label = 0; label < options.classes; ++label)
      make_folder(fmt::format("{}/{}/class{:03}", options.path, split, label));

  parallel_for(
      options.count, 1, options.threads, options.progress,
      [&](std::uint64_t sample, std::uint64_t) {
        const auto label = static_cast<int>(sample % static_cast<std::uint64_t>(options.classes));
        Draw draw(base::stream({options.seed, 0, sample}, base::op_id("photos")));
        const Photo photo = draw_photo(label, options.classes, draw);
        write_or_match(options.path + "/" + names[sample],
                       encode_jpeg(photo.pixels, photo.size, options.quality), options.force);
      });
}

}  // namespace millrace::tools
