// Tests the PNG files of masks: class ids as libpng wrote them, and one line for anything else.
#include "pipeline/decoders/label_png.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/data/png_file.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::label_png;

constexpr Size kPngSize{37, 23};
constexpr std::uint64_t kPixelLimit = 10'000;

Bytes label_noise(std::size_t size) {
  Draw draw(base::stream({3, 0, size}, base::op_id("labels")));
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::uint8_t>(i % 5 < 3 ? i / 37 : draw.bits());
  return bytes;
}

Bytes rows_of(LabelPng& png, const Bytes& file, int rows) {
  png.open(file, kPixelLimit);
  const ImageView view = png.pixels({0, 0, png.size().width, rows}, 0);
  EXPECT_EQ(view.size(), png.size());
  Bytes ids;
  for (int y = 0; y < rows; ++y)
    for (int x = 0; x < view.width; ++x) ids.push_back(*view.at(x, y));
  return ids;
}

TEST(LabelPng, HasTheIdsOfEveryDepthAndFilter) {
  LabelPng png;
  for (const int colour : {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_PALETTE})
    for (const int depth : {1, 2, 4, 8}) {
      if (colour == PNG_COLOR_TYPE_GRAY && depth < 8) continue;
      const auto row = static_cast<std::size_t>((kPngSize.width * depth + 7) / 8);
      const Bytes packed = label_noise(row * static_cast<std::size_t>(kPngSize.height));
      Bytes ids;
      for (int y = 0; y < kPngSize.height; ++y)
        for (int x = 0; x < kPngSize.width; ++x) {
          const int bit = x * depth;
          const int byte =
              packed[static_cast<std::size_t>(y) * row + static_cast<std::size_t>(bit / 8)];
          ids.push_back(
              static_cast<std::uint8_t>(byte >> (8 - depth - bit % 8) & ((1 << depth) - 1)));
        }
      for (const int filters : {PNG_FILTER_NONE, PNG_FILTER_SUB, PNG_FILTER_UP, PNG_FILTER_AVG,
                                PNG_FILTER_PAETH, PNG_ALL_FILTERS}) {
        const Bytes file =
            label_png(kPngSize, packed, {.colour = colour, .depth = depth, .filters = filters});
        EXPECT_EQ(rows_of(png, file, kPngSize.height), ids)
            << depth << " bits, filters " << filters;
        EXPECT_EQ(rows_of(png, file, 5), Bytes(ids.begin(), ids.begin() + 5 * kPngSize.width));
      }
    }
}

TEST(LabelPng, SaysWhatItCannotRead) {
  LabelPng png;
  const auto refused = [&](const Bytes& file, const std::string& part) {
    test::expect_error(Exit::data, {part}, [&] { rows_of(png, file, kPngSize.height); });
  };
  const Bytes rows = label_noise(std::size_t{8} * 37 * 23);
  refused(label_png(kPngSize, rows, {PNG_COLOR_TYPE_GRAY, 16}), "its mask is a PNG of 16-bit gray");
  refused(label_png(kPngSize, rows, {PNG_COLOR_TYPE_GRAY, 1}), "its mask is a PNG of 1-bit gray");
  refused(label_png(kPngSize, rows, {PNG_COLOR_TYPE_RGB, 8}), "its mask is a PNG of 8-bit RGB");
  refused(label_png(kPngSize, rows, {PNG_COLOR_TYPE_RGB_ALPHA, 8}), "8-bit RGB and alpha");
  refused(label_png(kPngSize, rows, {.interlaced = true}), "interlaced");
  refused(label_png({200, 60}, label_noise(12'000)), "its mask claims 200x60 pixels");
  refused({}, "no PNG");
  refused({1, 2, 3}, "no PNG");
}

TEST(LabelPng, FindsDamageAndGoesOn) {
  LabelPng png;
  const Bytes ids = label_noise(37 * 23);
  const Bytes sound = label_png(kPngSize, ids);
  for (std::size_t size = 8; size + 12 < sound.size(); size += 7)
    test::expect_error(Exit::data, {"its mask"},
                       [&] { rows_of(png, test::cut(sound, size), kPngSize.height); });
  for (std::size_t at = 12; at + 12 < sound.size(); at += 5) {
    Bytes damaged = sound;
    damaged[at] ^= 0x41;
    test::expect_error(Exit::data, {"its mask"}, [&] { rows_of(png, damaged, kPngSize.height); });
  }
  EXPECT_EQ(rows_of(png, sound, kPngSize.height), ids);
}

}  // namespace
}  // namespace millrace::pipeline
