// Draws photos in parallel and writes an image folder.
#include "tools/data/make_photos.h"

#include <fmt/core.h>

#include <vector>

#include "base/rng.h"
#include "millrace/error.h"
#include "tools/data/jpeg_writer.h"
#include "tools/data/output_file.h"
#include "tools/data/output_folder.h"
#include "tools/data/photo_drawing.h"

namespace millrace::tools {
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
