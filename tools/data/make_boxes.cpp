// Scenes of shapes whose boxes are known, as COCO's and as YOLO's files list them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "millrace/error.h"
#include "tools/data/data.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;
using Colour = std::array<double, 3>;

constexpr Size kScene{320, 240};
constexpr std::uint32_t kMaxShapes = 6;
constexpr int kQuality = 92;

/// A shape that touches all four edges of its box.
struct Shape {
  int label;
  int left, top, width, height;
  Colour colour;

  bool covers(int px, int py) const {
    const double x = 2 * (px + .5 - left) / width - 1, y = 2 * (py + .5 - top) / height - 1;
    if (std::max(std::abs(x), std::abs(y)) > 1) return false;
    if (label == 0) return true;
    return label == 1 ? x * x + y * y <= 1 : std::abs(x) <= (y + 1) / 2 + 1. / width;
  }
  bool overlaps(const Shape& other) const {
    return left < other.left + other.width && other.left < left + width &&
           top < other.top + other.height && other.top < top + height;
  }
};

Colour drawn_colour(Draw& draw, double low, double high) {
  Colour colour{};
  for (double& channel : colour) channel = draw.uniform(low, high);
  return colour;
}

int drawn_side(Draw& draw) { return 24 + static_cast<int>(draw.integer(73)); }

std::vector<Shape> drawn_shapes(Draw& draw) {
  std::vector<Shape> shapes;
  for (std::uint32_t left = 1 + draw.integer(kMaxShapes); left > 0; --left) {
    Shape shape{static_cast<int>(draw.integer(kShapeNames.size())),
                0,
                0,
                drawn_side(draw),
                drawn_side(draw),
                {}};
    shape.left =
        static_cast<int>(draw.integer(static_cast<std::uint32_t>(kScene.width - shape.width + 1)));
    shape.top = static_cast<int>(
        draw.integer(static_cast<std::uint32_t>(kScene.height - shape.height + 1)));
    shape.colour = drawn_colour(draw, 140, 255);
    // Hidden parts would make boxes that cannot be seen.
    const bool free = std::none_of(shapes.begin(), shapes.end(),
                                   [&](const Shape& other) { return other.overlaps(shape); });
    if (free) shapes.push_back(shape);
  }
  return shapes;
}

/// Returns a palette PNG of class ids. Throws RunError.
std::vector<std::uint8_t> encode_mask(const std::vector<Shape>& shapes) {
  std::vector<std::uint8_t> ids;
  ids.reserve(static_cast<std::size_t>(kScene.width * kScene.height));
  for (int y = 0; y < kScene.height; ++y)
    for (int x = 0; x < kScene.width; ++x) {
      const auto shape = std::find_if(shapes.begin(), shapes.end(),
                                      [&](const Shape& one) { return one.covers(x, y); });
      ids.push_back(static_cast<std::uint8_t>(shape != shapes.end() ? shape->label + 1 : 0));
    }
  constexpr std::uint8_t kColours[1 + kShapeNames.size()][3] = {
      {0, 0, 0}, {220, 60, 40}, {60, 200, 60}, {60, 90, 230}};
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(kScene.width);
  image.height = static_cast<png_uint_32>(kScene.height);
  image.format = PNG_FORMAT_RGB_COLORMAP;
  image.colormap_entries = std::size(kColours);
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<std::uint8_t> png(size);
  if (png_image_write_to_memory(&image, png.data(), &size, 0, ids.data(), 0, kColours) == 0)
    throw RunError(fmt::format("a mask could not be encoded: {}", image.message), "free memory");
  png.resize(size);
  return png;
}

std::vector<std::uint8_t> pixels_of(const std::vector<Shape>& shapes, Draw& draw) {
  const Colour ground = drawn_colour(draw, 10, 70);
  std::vector<std::uint8_t> pixels;
  pixels.reserve(3 * static_cast<std::size_t>(kScene.width * kScene.height));
  for (int y = 0; y < kScene.height; ++y)
    for (int x = 0; x < kScene.width; ++x) {
      const auto shape = std::find_if(shapes.begin(), shapes.end(),
                                      [&](const Shape& one) { return one.covers(x, y); });
      const Colour& colour = shape != shapes.end() ? shape->colour : ground;
      const double grain = draw.uniform(-10, 10);
      for (const double channel : colour)
        pixels.push_back(static_cast<std::uint8_t>(std::clamp(channel + grain, 0., 255.)));
    }
  return pixels;
}

/// Returns the lines of an image's label file.
std::string labels_of(const std::vector<Shape>& shapes) {
  std::string lines;
  for (const Shape& shape : shapes)
    lines += fmt::format("{} {} {} {} {}\n", shape.label,
                         (shape.left + 0.5 * shape.width) / kScene.width,
                         (shape.top + 0.5 * shape.height) / kScene.height,
                         1.0 * shape.width / kScene.width, 1.0 * shape.height / kScene.height);
  return lines;
}

/// Returns the outline of a shape as runs of pixels outside and inside, down the columns.
Json runs_of(const Shape& shape) {
  std::vector<int> runs{0};
  for (int x = 0; x < kScene.width; ++x)
    for (int y = 0; y < kScene.height; ++y) {
      if (shape.covers(x, y) != (runs.size() % 2 == 0)) runs.push_back(0);
      ++runs.back();
    }
  return {{"size", {kScene.height, kScene.width}}, {"counts", runs}};
}

/// Returns the annotations of a split, whose images have these shapes; with outlines if `masks`.
std::string annotations_of(const std::vector<std::vector<Shape>>& images, bool masks) {
  Json json{
      {"images", Json::array()}, {"annotations", Json::array()}, {"categories", Json::array()}};
  for (std::size_t label = 0; label < kShapeNames.size(); ++label)
    json["categories"].push_back({{"id", label + 1}, {"name", kShapeNames[label]}});
  for (std::size_t image = 0; image < images.size(); ++image) {
    json["images"].push_back({{"id", image + 1},
                              {"file_name", fmt::format("{:06}.jpg", image)},
                              {"width", kScene.width},
                              {"height", kScene.height}});
    for (const Shape& shape : images[image]) {
      json["annotations"].push_back({{"id", json["annotations"].size() + 1},
                                     {"image_id", image + 1},
                                     {"category_id", shape.label + 1},
                                     {"bbox", {shape.left, shape.top, shape.width, shape.height}},
                                     {"area", shape.width * shape.height},
                                     {"iscrowd", 0}});
      if (masks) json["annotations"].back()["segmentation"] = runs_of(shape);
    }
  }
  return json.dump() + "\n";
}

struct Split {
  const char* name;
  std::uint32_t epoch;  ///< separates the random draws of the two splits
  std::uint32_t count;
};

}  // namespace

void make_boxes(const BoxesOptions& options) {
  if (options.train == 0 || options.test == 0)
    throw UsageError("a data set needs a training image and a test image", "give larger counts");
  const Split splits[] = {{"train", 0, options.train}, {"test", 1, options.test}};
  std::vector<std::string> names{"classes.txt"};
  for (const Split& split : splits) {
    names.push_back(fmt::format("annotations/instances_{}.json", split.name));
    for (std::uint32_t i = 0; i < split.count; ++i) {
      for (const char* name : {"images/{}/{:06}.jpg", "labels/{}/{:06}.txt"})
        names.push_back(fmt::format(fmt::runtime(name), split.name, i));
      if (options.masks) names.push_back(fmt::format("masks/{}/{:06}.png", split.name, i));
    }
  }
  prepare_folder(options.path, names, options.force);
  for (const char* folder :
       {"annotations", "images/train", "images/test", "labels/train", "labels/test"})
    make_folder(options.path + "/" + folder);
  for (const char* folder : {"masks/train", "masks/test"})
    if (options.masks) make_folder(options.path + "/" + folder);
  const auto write = [&](const std::string& name, std::string_view text) {
    const std::vector<std::uint8_t> bytes(text.begin(), text.end());
    write_or_match(options.path + "/" + name, bytes, options.force);
  };
  write("classes.txt", fmt::format("{}\n", fmt::join(kShapeNames, "\n")));

  std::uint64_t before = 0;
  for (const Split& split : splits) {
    std::vector<std::vector<Shape>> shapes(split.count);
    const Progress progress = [&](std::uint64_t done, std::uint64_t) {
      if (options.progress) options.progress(before + done, options.train + options.test);
    };
    parallel_for(split.count, 1, options.threads, progress, [&](std::uint64_t i, std::uint64_t) {
      Draw draw(base::stream({options.seed, split.epoch, i}, base::op_id("boxes")));
      shapes[i] = drawn_shapes(draw);
      write_or_match(fmt::format("{}/images/{}/{:06}.jpg", options.path, split.name, i),
                     encode_jpeg(pixels_of(shapes[i], draw), kScene, kQuality), options.force);
      write(fmt::format("labels/{}/{:06}.txt", split.name, i), labels_of(shapes[i]));
      if (options.masks)
        write_or_match(fmt::format("{}/masks/{}/{:06}.png", options.path, split.name, i),
                       encode_mask(shapes[i]), options.force);
    });
    write(fmt::format("annotations/instances_{}.json", split.name),
          annotations_of(shapes, options.masks));
    before += split.count;
  }
}

}  // namespace millrace::tools
