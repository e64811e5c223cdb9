// Shapes of the ten classes, shaded and noisy.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "millrace/error.h"
#include "millrace/math.hpp"
#include "tools/data/data.h"

namespace millrace::tools {
namespace {

using Colour = std::array<double, 3>;

double disc(double x, double y, double radius) { return radius - std::sqrt(x * x + y * y); }

double box(double x, double y, double width, double height) {
  return std::min(width - std::abs(x), height - std::abs(y));
}

double triangle(double x, double y) { return std::min(.5 - y, .5 * y + .45 - .87 * std::abs(x)); }

double bars(double x, double y) {
  return std::max({box(x, y - .7, .8, .17), box(x, y, .8, .17), box(x, y + .7, .8, .17)});
}

double dots(double x, double y) { return disc(std::abs(x) - .5, std::abs(y) - .5, .34); }

/// Returns how far inside the class's object a point lies; 0 at its edge. The object fills about
/// [-1, 1].
double depth(int label, double x, double y) {
  switch (label) {
    case 0:
      return disc(x, y, .85);
    case 1:
      return box(x, y, .75, .75);
    case 2:
      return triangle(x, y);
    case 3:
      return std::min(disc(x, y, .95), -disc(x, y, .5));
    case 4:
      return std::max(box(x, y, .9, .26), box(x, y, .26, .9));
    case 5:
      return bars(x, y);
    case 6:
      return std::min(disc(x, y, .9), -disc(x - .5, y, .7));
    case 7:  // two triangles, one upside down
      return std::max(triangle(x, y), triangle(x, -y));
    case 8:
      return std::min(box(x, y, .85, .85), -box(x, y, .5, .5));
    default:
      return dots(x, y);
  }
}

Colour any_colour(Draw& draw) {
  Colour colour{};
  for (double& channel : colour) channel = draw.uniform(30, 225);
  return colour;
}

double distance(const Colour& a, const Colour& b) {
  return std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2]);
}

}  // namespace

void draw_object(int label, Draw& draw, std::span<std::uint8_t, kObjectPixels> pixels) {
  const double size = draw.uniform(7.5, 13);
  const double x0 = kObjectSide / 2. + draw.uniform(-4, 4);
  const double y0 = kObjectSide / 2. + draw.uniform(-4, 4);
  const SinCos turn = sincos_degrees(draw.uniform(-25, 25));
  const Colour top = any_colour(draw), bottom = any_colour(draw);
  Colour object = any_colour(draw);
  Colour middle{};
  for (std::size_t c = 0; c < 3; ++c) middle[c] = (top[c] + bottom[c]) / 2;
  if (distance(object, middle) < 120)  // too little contrast would hide the object
    for (std::size_t c = 0; c < 3; ++c) object[c] = middle[c] < 128 ? 235 : 20;
  const double noise = draw.uniform(10, 60);

  constexpr std::size_t kPlane = std::size_t{kObjectSide} * kObjectSide;
  for (int y = 0; y < kObjectSide; ++y)
    for (int x = 0; x < kObjectSide; ++x) {
      const double dx = (x + .5 - x0) / size, dy = (y + .5 - y0) / size;
      const double inside =
          depth(label, dx * turn.cos + dy * turn.sin, dy * turn.cos - dx * turn.sin);
      const double cover = std::clamp(inside * size + .5, 0., 1.);
      const double down = static_cast<double>(y) / kObjectSide;
      const double grain = noise * (draw.uniform() - .5);
      const std::size_t at = static_cast<std::size_t>(y * kObjectSide + x);
      for (std::size_t c = 0; c < 3; ++c) {
        const double behind = top[c] + down * (bottom[c] - top[c]);
        const double level = behind + cover * (object[c] - behind) + grain;
        pixels[c * kPlane + at] = static_cast<std::uint8_t>(std::clamp(level, 0., 255.));
      }
    }
}

// Draws objects in parallel and writes CIFAR-10's binary files.
namespace {

constexpr std::size_t kRecord = 1 + kObjectPixels;  // the label, then the pixels
constexpr std::uint32_t kTrainFiles = 5;
constexpr const char* kNamesFile = "batches.meta.txt";

/// A file's range of samples, counted through the split.
struct File {
  std::string name;
  std::uint32_t epoch;  ///< separates the random draws of the two splits
  std::uint32_t first, count;
};

std::vector<File> files_of(const ObjectsOptions& options) {
  std::vector<File> files;
  for (std::uint32_t i = 0; i < kTrainFiles; ++i) {
    const auto start = [&](std::uint64_t file) {
      return static_cast<std::uint32_t>(file * options.train / kTrainFiles);
    };
    files.push_back(
        {fmt::format("data_batch_{}.bin", i + 1), 0, start(i), start(i + 1) - start(i)});
  }
  files.push_back({"test_batch.bin", 1, 0, options.test});
  return files;
}

std::vector<std::uint8_t> records(const File& file, const ObjectsOptions& options,
                                  const Progress& progress) {
  std::vector<std::uint8_t> bytes(std::size_t{file.count} * kRecord);
  parallel_for(
      file.count, 500, options.threads, progress, [&](std::uint64_t begin, std::uint64_t end) {
        for (std::uint64_t i = begin; i < end; ++i) {
          Draw draw(
              base::stream({options.seed, file.epoch, file.first + i}, base::op_id("objects")));
          const auto label = static_cast<int>(draw.integer(kObjectNames.size()));
          std::uint8_t* record = bytes.data() + i * kRecord;
          record[0] = static_cast<std::uint8_t>(label);
          draw_object(label, draw,
                      std::span<std::uint8_t, kObjectPixels>(record + 1, kObjectPixels));
        }
      });
  return bytes;
}

}  // namespace

void make_objects(const ObjectsOptions& options) {
  if (options.train < kTrainFiles || options.test == 0)
    throw UsageError(
        "a data set needs at least five training images, one per file, and one test image",
        "give larger counts");
  const std::vector<File> files = files_of(options);
  std::vector<std::string> names{kNamesFile};
  for (const File& file : files) names.push_back(file.name);
  prepare_folder(options.path, names, options.force);

  std::uint64_t before = 0;
  for (const File& file : files) {
    write_or_match(options.path + "/" + file.name,
                   records(file, options,
                           [&](std::uint64_t done, std::uint64_t) {
                             if (options.progress)
                               options.progress(before + done, options.train + options.test);
                           }),
                   options.force);
    before += file.count;
  }
  const std::string names_text = fmt::format("{}\n", fmt::join(kObjectNames, "\n"));
  write_or_match(options.path + "/" + kNamesFile,
                 std::vector<std::uint8_t>(names_text.begin(), names_text.end()), options.force);
}

}  // namespace millrace::tools
