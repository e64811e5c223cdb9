// Tests decoding of parts, at smaller scales and of turned images: levels equal those of the whole
// image decoded.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "pipeline/decoders/decoder.h"
#include "tests/data/jpeg_forms.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::JpegForm;

constexpr std::uint64_t kAnyPixels = 1'000'000'000;

Rect random_rect(Size size, Draw& draw) {
  const auto span = [&](int side, std::int32_t& begin, std::int32_t& end) {
    begin = static_cast<int>(draw.integer(static_cast<std::uint32_t>(side)));
    end = begin + 1 + static_cast<int>(draw.integer(static_cast<std::uint32_t>(side - begin)));
    if (draw.chance(.2)) end = std::min(begin + 1, side);
    if (draw.chance(.1)) begin = 0;
    if (draw.chance(.1)) end = side;
  };
  Rect rect;
  span(size.width, rect.x0, rect.x1);
  span(size.height, rect.y0, rect.y1);
  return rect;
}

/// Expects that random regions of a file equal the whole image's, level for level.
void expect_regions_exact(const Bytes& file, int channels, int scale, int regions, Draw& draw,
                          const std::string& what) {
  DecodeScratch whole, part;
  whole.open(file, kAnyPixels);
  const EncodedImage& found = whole.image();
  const Size size{(found.size.width + (1 << scale) - 1) >> scale,
                  (found.size.height + (1 << scale) - 1) >> scale};
  const ImageView all = whole.decode(channels, {0, 0, size.width, size.height}, scale);
  ASSERT_EQ(all.size(), size);
  part.open(file, kAnyPixels);
  for (int i = 0; i < regions; ++i) {
    const Rect rect = random_rect(size, draw);
    if (draw.chance(.5)) part.open(file, kAnyPixels);  // otherwise the header is parsed again
    const ImageView image = part.decode(channels, rect, scale);
    ASSERT_EQ(image.size(), size);
    ASSERT_TRUE(test::pixels_of(image, rect) == test::pixels_of(all, rect))
        << what << ", " << size.width << "x" << size.height << ", scale " << scale << ", "
        << channels << " channels, columns " << rect.x0 << " to " << rect.x1 << ", rows " << rect.y0
        << " to " << rect.y1;
  }
}

struct Sampling {
  const char* name;
  int h, v;
};
constexpr Sampling kSamplings[] = {{"4:4:4", 1, 1}, {"4:2:2", 2, 1}, {"4:2:0", 2, 2},
                                   {"4:4:0", 1, 2}, {"4:1:1", 4, 1}, {"4:1:0", 4, 2},
                                   {"1x4", 1, 4}};

void expect_exact(JpegForm form, const char* what, int regions = 12) {
  Draw draw(base::stream({7, 0, 0}, base::op_id(what)));
  const bool cmyk = form.stored == JCS_CMYK || form.stored == JCS_YCCK;
  for (const Sampling& sampling : kSamplings) {
    if (cmyk && sampling.h * sampling.v > 4) continue;  // more blocks than JPEG allows
    for (const Size size : {Size{131, 117}, Size{64, 96}, Size{33, 19}, Size{7, 70}, Size{3, 2}}) {
      form.h = sampling.h;
      form.v = sampling.v;
      const Bytes file = test::jpeg(size, form, test::noise(size));
      for (int scale = 0; scale <= 3; ++scale)
        for (const int channels : {3, 1})
          ASSERT_NO_FATAL_FAILURE(expect_regions_exact(file, channels, scale, regions, draw,
                                                       std::string(what) + " " + sampling.name));
    }
  }
}

TEST(Region, Baseline) { expect_exact({}, "baseline"); }
TEST(Region, Progressive) { expect_exact({JCS_YCbCr, true}, "progressive"); }
TEST(Region, RestartMarkers) {
  expect_exact({JCS_YCbCr, false, 1}, "restart a row");
  expect_exact({.restart_blocks = 3}, "restart every third");
}
TEST(Region, Arithmetic) { expect_exact({.arithmetic = true}, "arithmetic", 2); }
TEST(Region, Rgb) { expect_exact({JCS_RGB}, "rgb", 8); }
TEST(Region, Cmyk) {
  expect_exact({JCS_CMYK}, "cmyk", 8);
  expect_exact({JCS_YCCK}, "ycck", 8);
}
TEST(Region, Gray) {
  expect_exact({JCS_GRAYSCALE}, "gray");
  expect_exact({JCS_GRAYSCALE, true}, "gray progressive");
}

/// Ends a progressive file before its second scan; libjpeg guesses the rest.
TEST(Region, ProgressiveWithoutItsLastScans) {
  const Size size{131, 117};
  Bytes file = test::jpeg(size, {JCS_YCbCr, true}, test::ramp(size));
  int scans = 0;
  for (std::size_t at = 2; at + 1 < file.size(); ++at)
    if (file[at] == 0xff && file[at + 1] == 0xda && ++scans == 2) file.resize(at);
  file.insert(file.end(), {0xff, 0xd9});
  ASSERT_EQ(scans, 2);
  Draw draw(base::stream({7, 0, 0}, base::op_id("few scans")));
  for (int scale = 0; scale <= 3; ++scale)
    expect_regions_exact(file, 3, scale, 50, draw, "first scan");
}

// ---- orientation

TEST(Orientation, AllEightAreTheStoredPixelsWalkedOtherwise) {
  const Size stored{45, 23};
  const Bytes rgb = test::noise(stored);
  DecodeScratch plain, turned;
  const Bytes file = test::jpeg(stored, {}, rgb);
  Draw draw(base::stream({7, 0, 0}, base::op_id("orientation")));
  for (int scale = 0; scale <= 3; ++scale) {
    plain.open(file, kAnyPixels);
    const Size small{(stored.width + (1 << scale) - 1) >> scale,
                     (stored.height + (1 << scale) - 1) >> scale};
    const ImageView all = plain.decode(3, {0, 0, small.width, small.height}, scale);
    for (int orientation = 1; orientation <= 8; ++orientation) {
      const Bytes other = test::jpeg(
          stored, {.app1 = test::exif(orientation, orientation % 2 == 0, orientation)}, rgb);
      const EncodedImage& found = turned.open(other, kAnyPixels);
      EXPECT_EQ(found.orientation, orientation);
      EXPECT_EQ(found.stored, stored);
      ASSERT_EQ(found.size, orientation < 5 ? stored : (Size{stored.height, stored.width}));
      const Size seen = orientation < 5 ? small : Size{small.height, small.width};
      for (int i = 0; i < 10; ++i) {
        const Rect rect = i == 0 ? Rect{0, 0, seen.width, seen.height} : random_rect(seen, draw);
        const ImageView image = turned.decode(3, rect, scale);
        ASSERT_EQ(image.size(), seen);
        for (int y = rect.y0; y < rect.y1; ++y)
          for (int x = rect.x0; x < rect.x1; ++x)
            for (int c = 0; c < 3; ++c) {
              const auto [u, v] = test::stored_place(orientation, small, x, y);
              ASSERT_EQ(*image.at(x, y, c), *all.at(u, v, c))
                  << "orientation " << orientation << ", scale " << scale << " at " << x << ", "
                  << y;
            }
      }
    }
  }
}

int orientation_of(const Bytes& app1) {
  DecodeScratch scratch;
  const Size size{9, 5};
  const int orientation =
      scratch.open(test::jpeg(size, {.app1 = app1}, test::ramp(size)), kAnyPixels).orientation;
  return orientation;
}

TEST(Orientation, GarbageIsNone) {
  const Bytes good = test::exif(6);
  EXPECT_EQ(orientation_of(good), 6);
  for (std::size_t size = 0; size < good.size() - 4; ++size)
    EXPECT_LE(orientation_of(test::cut(good, size)), size < 30 ? 1 : 6) << size;
  const auto changed = [&](std::initializer_list<std::pair<std::size_t, int>> changes) {
    Bytes bytes = good;
    for (const auto& [at, value] : changes) bytes[at] = static_cast<std::uint8_t>(value);
    return orientation_of(bytes);
  };
  EXPECT_EQ(changed({{4, 'x'}}), 1);                         // not "Exif"
  EXPECT_EQ(changed({{6, 'X'}}), 1);                         // no byte order
  EXPECT_EQ(changed({{8, 43}}), 1);                          // not TIFF
  EXPECT_EQ(changed({{10, 0}}), 1);                          // the directory is the header itself
  EXPECT_EQ(changed({{10, 255}, {12, 255}, {13, 255}}), 1);  // the directory is far away
  EXPECT_EQ(changed({{14, 0}}), 1);                          // an empty directory
  EXPECT_EQ(changed({{14, 255}, {15, 255}}), 6);             // 65535 entries, of which one exists
  EXPECT_EQ(changed({{14, 255}, {15, 255}, {16, 0}}), 1);    // ... and it is another one
  EXPECT_EQ(changed({{18, 2}}), 1);                          // text
  EXPECT_EQ(changed({{24, 0}}), 1);
  EXPECT_EQ(changed({{24, 9}}), 1);
  // The next directory is this one again; the parser does not follow it.
  EXPECT_EQ(changed({{28, 8}}), 6);
  EXPECT_EQ(changed({{16, 0}, {28, 8}}), 1);
  EXPECT_EQ(orientation_of(Bytes(65533, 0x55)), 1);
  EXPECT_EQ(orientation_of({'E', 'x', 'i', 'f', 0, 0}), 1);
}

// ---- scales

TEST(Scale, IsNearTheMeanOfItsPixels) {
  const Size size{67, 45};
  const Bytes rgb = test::ramp(size);
  DecodeScratch scratch;
  const Bytes file = test::jpeg(size, {}, rgb);
  for (int scale = 1; scale <= 3; ++scale) {
    const EncodedImage& found = scratch.open(file, kAnyPixels);
    ASSERT_EQ(found.scales, 0b1111u);
    const int step = 1 << scale;
    const ImageView image = scratch.decode(3, {0, 0, size.width / step, size.height / step}, scale);
    for (int y = 0; y < size.height / step; ++y)
      for (int x = 0; x < size.width / step; ++x)
        for (int c = 0; c < 3; ++c) {
          double mean = 0;
          for (int v = 0; v < step; ++v)
            for (int u = 0; u < step; ++u)
              mean += rgb[static_cast<std::size_t>(
                  ((y * step + v) * size.width + x * step + u) * 3 + c)];
          ASSERT_NEAR(*image.at(x, y, c), mean / step / step, 4)
              << "scale " << scale << " at " << x << ", " << y;
        }
  }
}

// ---- real photographs

TEST(Region, OfRealImagesIsExact) {
  const char* folder = std::getenv("MILLRACE_DATA");
  if (folder == nullptr || !test::fs::is_directory(test::fs::path(folder) / "imagenet"))
    GTEST_SKIP()
        << "MILLRACE_DATA names no folder with imagenet/ in it: regions of real images are "
           "not tried";
  Draw draw(base::stream({7, 0, 0}, base::op_id("real")));
  int images = 0;
  for (const auto& entry :
       test::fs::recursive_directory_iterator(test::fs::path(folder) / "imagenet")) {
    if (!entry.is_regular_file()) continue;
    const Bytes file = test::read_bytes(entry.path());
    ASSERT_NO_FATAL_FAILURE(
        expect_regions_exact(file, 3, 0, 4, draw, entry.path().filename().string()));
    for (int scale = 1; scale <= 3; ++scale)
      ASSERT_NO_FATAL_FAILURE(
          expect_regions_exact(file, 3, scale, 1, draw, entry.path().filename().string()));
    ++images;
  }
  EXPECT_GT(images, 0);
  std::printf("regions of %d images compared\n", images);
}

}  // namespace
}  // namespace millrace::pipeline
