// Draws digits in parallel and writes IDX files.
#include "tools/data/make_digits.h"

#include <array>
#include <span>
#include <vector>

#include "base/rng.h"
#include "millrace/error.h"
#include "tools/data/digit_drawing.h"
#include "tools/data/output_file.h"
#include "tools/data/output_folder.h"

namespace millrace::tools {
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
