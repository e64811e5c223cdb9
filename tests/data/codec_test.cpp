// Compares the decoders of PNG, TIFF and WebP with OpenCV's imdecode: an intact file that OpenCV
// decodes has the same levels here, and a damaged one has them or is rejected.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <optional>

#include "millrace/error.h"
#include "pipeline/decoders/decoder.h"
#include "tests/data/image_forms.h"
#include "tests/data/jpeg_forms.h"
#include "tests/fuzz/mutate.h"
#include "tests/generated_cases.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::Form;

constexpr std::uint64_t kPixelLimit = 1'000'000;

/// Pixels and size of a decoded image.
struct Picture {
  Size size;
  Bytes pixels;
  bool operator==(const Picture& other) const {
    return size == other.size && pixels == other.pixels;
  }
};

/// Decodes with OpenCV, upright, as RGB or gray; nothing if it cannot.
std::optional<Picture> decoded_by_opencv(const Bytes& file, int channels) {
  const int mode = channels == 1 ? cv::IMREAD_GRAYSCALE : cv::IMREAD_COLOR;
  cv::Mat image;
  try {
    image = cv::imdecode(file, mode | cv::IMREAD_IGNORE_ORIENTATION);
  } catch (const cv::Exception&) {
    return std::nullopt;
  }
  if (image.empty()) return std::nullopt;
  Picture picture{{image.cols, image.rows}, {}};
  for (int y = 0; y < image.rows; ++y)
    for (int x = 0; x < image.cols; ++x)
      for (int c = channels - 1; c >= 0; --c)  // blue comes first
        picture.pixels.push_back(image.ptr(y)[x * channels + c]);
  return picture;
}

std::optional<Picture> decoded_here(DecodeScratch& scratch, const Bytes& file, int channels) {
  try {
    const ImageView image = scratch.decode(file, channels, kPixelLimit);
    Picture picture{image.size(), {}};
    for (int y = 0; y < image.height; ++y)
      for (int x = 0; x < image.width; ++x)
        for (int c = 0; c < channels; ++c) picture.pixels.push_back(*image.at(x, y, c));
    return picture;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

/// Returns whether OpenCV scrambles the last image that `scratch` decoded: it mirrors each tile of
/// a TIFF by itself and leaves it at its place.
bool is_scrambled_by_opencv(const DecodeScratch& scratch, const Bytes& file) {
  const int orientation = scratch.image().orientation;
  const bool is_tiff = file.size() > 2 && (file[0] == 'I' || file[0] == 'M');
  return is_tiff && (orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7);
}

/// Turns off what OpenCV and libtiff print about files.
void silence() {
  cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
  TIFFSetErrorHandler(nullptr);
  TIFFSetWarningHandler(nullptr);
}

/// Expects equal levels of every form that OpenCV decodes. Returns their number.
int compare(const std::vector<Form>& forms) {
  silence();
  DecodeScratch scratch;
  int equal = 0;
  for (const Form& form : forms)
    for (const int channels : {1, 3}) {
      const auto expected = decoded_by_opencv(form.file, channels);
      const auto here = decoded_here(scratch, form.file, channels);
      EXPECT_TRUE(here) << form.name;
      if (!expected) continue;
      if (form.name.find("tile") != form.name.npos && is_scrambled_by_opencv(scratch, form.file))
        continue;
      EXPECT_TRUE(here == expected) << form.name << " with " << channels << " channels";
      ++equal;
    }
  return equal;
}

constexpr Size kSizes[] = {{33, 21}, {1, 1}, {64, 16}, {7, 40}};

TEST(CodecEquality, Png) {
  int equal = 0;
  for (const Size size : kSizes) equal += compare(test::png_forms(size));
  EXPECT_EQ(equal, 4 * 104);
}

TEST(CodecEquality, Webp) {
  int equal = 0;
  for (const Size size : kSizes) equal += compare(test::webp_forms(size));
  EXPECT_EQ(equal, 4 * 20);
}

TEST(CodecEquality, Tiff) {
  int equal = 0;
  for (const Size size : kSizes) equal += compare(test::tiff_forms(size));
  EXPECT_GE(equal, 4 * 100);
}

/// Compares the values of files of 16 bits, as they are stored, with OpenCV's; those of planes that
/// lie apart, which OpenCV does not keep, with their 8 bits. Returns the number of files.
int compare_as_stored(const std::vector<Form>& forms) {
  silence();
  DecodeScratch scratch, narrow;
  int equal = 0;
  for (const Form& form : forms) {
    const EncodedImage image = scratch.open(form.file, kPixelLimit);
    if (image.depth != Depth::u16) continue;
    const Rect whole{0, 0, image.size.width, image.size.height};
    const ImageView view = scratch.decode(image.bands, whole, 0, Depth::u16);
    EXPECT_EQ(view.depth, Depth::u16) << form.name;
    const bool apart = image.bands > 1 && form.name.find("separate") != form.name.npos;
    const bool has_alpha = form.name.find("alpha -1") == form.name.npos;
    const cv::Mat expected = cv::imdecode(form.file, cv::IMREAD_UNCHANGED);
    if (apart ? has_alpha : expected.empty() || expected.depth() != CV_16U) continue;
    // Blue comes first, and transparency last.
    const int theirs = expected.channels(), colours = apart || theirs > 2 ? 3 : 1;
    const ImageView bytes = narrow.decode(form.file, 3, kPixelLimit);
    bool same = true;
    for (int y = 0; y < view.height; ++y)
      for (int x = 0; x < view.width; ++x)
        for (int c = 0; c < std::min(image.bands, colours); ++c) {
          std::uint16_t value;
          std::memcpy(&value, view.at(x, y, c), sizeof value);
          same = same &&
                 (apart ? std::abs(value / 257.0 - *bytes.at(x, y, c)) < 1
                        : value == expected.ptr<std::uint16_t>(y)[x * theirs + (colours - 1 - c)]);
        }
    EXPECT_TRUE(same) << form.name;
    ++equal;
  }
  return equal;
}

TEST(CodecEquality, SixteenBitsAreKeptWhereTheyAreAskedFor) {
  for (const Size size : kSizes) {
    EXPECT_GE(compare_as_stored(test::png_forms(size)), 8);
    EXPECT_GE(compare_as_stored(test::tiff_forms(size)), 20);
  }
}

/// Tiles change nothing about the picture, whatever its orientation.
TEST(CodecEquality, TilesOfMirroredTiffsAreInPlace) {
  const Size size{37, 21};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    DecodeScratch scratch;
    test::TiffForm form{PHOTOMETRIC_RGB, 8, 3, COMPRESSION_LZW, 4, 16};
    const auto upright = decoded_here(scratch, test::tiff(size, form), 3);
    form.orientation = orientation;
    const Bytes file = test::tiff(size, form);
    const ImageView turned = scratch.decode(file, 3, kPixelLimit);
    ASSERT_TRUE(upright);
    ASSERT_EQ(turned.size(), orientation < 5 ? size : (Size{21, 37}));
    for (int y = 0; y < turned.height; ++y)
      for (int x = 0; x < turned.width; ++x) {
        const auto [u, v] = test::stored_place(orientation, size, x, y);
        const auto place = static_cast<std::size_t>(v * size.width + u) * 3;
        ASSERT_EQ(*turned.at(x, y, 1), upright->pixels[place + 1]) << orientation;
      }
  }
}

/// Damages files. What is still accepted here must have OpenCV's levels.
void compare_damaged(const std::vector<Form>& forms) {
  silence();
  std::vector<Bytes> pool;
  for (const Form& form : forms) pool.push_back(form.file);
  const std::vector<std::string> tokens;
  const fuzz::Mutator mutate(tokens, 20'000);
  Draw draw(base::stream({3, 0, 0}, base::op_id("damage")));
  DecodeScratch scratch;
  int accepted = 0;
  constexpr int kFiles = test::generated_cases(3'000);
  for (int i = 0; i < kFiles; ++i) {
    const Bytes file = mutate(pool, draw);
    const auto here = decoded_here(scratch, file, 3);
    if (!here) continue;
    const auto expected = decoded_by_opencv(file, 3);
    if (!expected || is_scrambled_by_opencv(scratch, file)) continue;
    EXPECT_TRUE(here == expected) << "file " << i;
    ++accepted;
  }
  EXPECT_GT(accepted, kFiles / 150);
}

TEST(CodecEquality, DamagedPng) { compare_damaged(test::png_forms({9, 7})); }
TEST(CodecEquality, DamagedWebp) { compare_damaged(test::webp_forms({9, 7})); }
TEST(CodecEquality, DamagedTiff) { compare_damaged(test::tiff_forms({9, 7})); }

}  // namespace
}  // namespace millrace::pipeline
