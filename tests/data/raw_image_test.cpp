// Tests raw images: their header, that their pixels are read in place, and `data pack --format
// raw`.
#include "pipeline/decoders/raw_image.h"

#include <gtest/gtest.h>

#include "millrace/limits.h"
#include "pipeline/decoders/decoder.h"
#include "tests/data/jpeg_forms.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"
#include "tools/data/data.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::expect_data_error;
using test::read_bytes;
using test::TempFolder;
namespace fs = test::fs;

Bytes raw_noise(Size size, int channels = 3) {
  const Bytes pixels = test::noise(size);
  return to_raw(interleaved(pixels.data(), size, channels));
}

tools::PackOptions raw_options(const TempFolder& folder) {
  tools::PackOptions options;
  options.source = folder.path("src");
  options.target = folder.path("out");
  options.shrink.raw = true;
  options.force = true;
  return options;
}

TEST(RawImage, IsReadInPlace) {
  const Bytes bytes = raw_noise({7, 5});
  ASSERT_EQ(bytes.size(), RawImage::kHeaderBytes + 7 * 5 * 3);
  DecodeScratch decode;
  EXPECT_EQ(decode.open(bytes, kMaxPixels).size, (Size{7, 5}));
  EXPECT_EQ(decode.image().channels, 3);
  EXPECT_EQ(decode.image().scales, 1u);
  for (const Rect& region : {Rect{0, 0, 7, 5}, Rect{2, 1, 4, 5}}) {
    const ImageView view = decode.decode(3, region);
    EXPECT_EQ(view.data, bytes.data() + RawImage::kHeaderBytes) << "no pixel is copied";
    EXPECT_EQ(view.size(), (Size{7, 5}));
    EXPECT_EQ(view.row, 7 * 3);
  }
}

TEST(RawImage, ConvertsBetweenGrayAndColour) {
  const Bytes gray = raw_noise({6, 4}, 1);
  DecodeScratch decode;
  EXPECT_EQ(decode.decode(gray, 1, kMaxPixels).data, gray.data() + RawImage::kHeaderBytes);
  const ImageView colour = decode.decode(gray, 3, kMaxPixels);
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 6; ++x)
      for (int c = 0; c < 3; ++c)
        EXPECT_EQ(*colour.at(x, y, c), gray[RawImage::kHeaderBytes + 6u * y + x]);
  const Bytes three{255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 10, 10};
  const Bytes pixels = to_raw(interleaved(three.data(), {2, 2}, 3));
  const ImageView luma = decode.decode(pixels, 1, kMaxPixels);
  EXPECT_EQ(test::pixels_of(luma, {0, 0, 2, 2}), (Bytes{76, 150, 29, 10}));
}

TEST(RawImage, DamageIsNamed) {
  const Bytes whole = raw_noise({7, 5});
  for (std::size_t size = 0; size < whole.size(); ++size)
    expect_data_error({"raw image: "}, [&] { parse_raw(test::cut(whole, size)); });
  Bytes longer = whole;
  longer.push_back(0);
  expect_data_error({"106 bytes of pixels where 7x5x3 takes 105"}, [&] { parse_raw(longer); });
  for (std::size_t at = 0; at < RawImage::kHeaderBytes; ++at) {
    Bytes wrong = whole;
    wrong[at] ^= 0x10;
    expect_data_error({"raw image: "}, [&] { parse_raw(wrong); });
  }
  const auto sealed = [&](std::size_t at, std::uint8_t value) {
    Bytes bytes = whole;
    bytes[at] = value;
    seal_raw_header(bytes);
    return bytes;
  };
  expect_data_error({"version 3", "reads versions 1 and 2"}, [&] { parse_raw(sealed(8, 3)); });
  expect_data_error({"0x5 pixels"}, [&] { parse_raw(sealed(16, 0)); });
  expect_data_error({"65543x5 pixels"}, [&] { parse_raw(sealed(18, 1)); });
  expect_data_error({"of 2 channels"}, [&] { parse_raw(sealed(24, 2)); });
  expect_data_error({"where 7x4x3 takes 84"}, [&] { parse_raw(sealed(20, 4)); });
  const Bytes deep = to_raw(interleaved(whole.data(), {5, 3}, 2, Depth::u16));
  EXPECT_EQ(parse_raw(deep).depth, Depth::u16);
  Bytes odd = deep;
  odd[28] = 17;
  seal_raw_header(odd);
  expect_data_error({"values of 17 bits"}, [&] { parse_raw(odd); });
  EXPECT_NO_THROW(check_raw_pixels(whole));
  Bytes wrong = whole;
  wrong.back() ^= 1;
  EXPECT_NO_THROW(parse_raw(wrong)) << "decoding does not read every pixel";
  expect_data_error({"wrong checksum of its pixels"}, [&] { check_raw_pixels(wrong); });
}

TEST(RawImage, TheLimitOfPixelsHolds) {
  const Bytes whole = raw_noise({7, 5});
  DecodeScratch decode;
  expect_data_error({"35 pixels, more than data.max_pixels=34"}, [&] { decode.open(whole, 34); });
}

TEST(RawPack, HoldsThePixelsThatDecodingGives) {
  const TempFolder folder;
  const Size sizes[] = {{40, 30}, {30, 40}, {64, 64}};
  Bytes files[3];
  for (int i = 0; i < 3; ++i) {
    files[i] = tools::encode_jpeg(test::noise(sizes[i]), sizes[i], 90);
    folder.write("src/train/" + std::string(i == 1 ? "b/" : "a/") + std::to_string(i) + ".jpg",
                 files[i]);
  }
  const auto packed = tools::pack(raw_options(folder));
  EXPECT_EQ(packed[0].count, 3u);
  const auto before = open_reader({"folder", folder.path("src")});
  const auto after = open_reader({"tar", folder.path("out")});
  EXPECT_EQ(before->info().classes, after->info().classes);
  Buffer one, two;
  DecodeScratch jpeg, raw;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Sample wanted = before->read(i, one), found = after->read(i, two);
    EXPECT_EQ(found.label, wanted.label);
    ASSERT_TRUE(is_raw(found.bytes));
    EXPECT_NO_THROW(check_raw_pixels(found.bytes));
    const ImageView expected = jpeg.decode(wanted.bytes, 3, kMaxPixels);
    const ImageView view = raw.decode(found.bytes, 3, kMaxPixels);
    const Rect all{0, 0, expected.width, expected.height};
    ASSERT_EQ(view.size(), expected.size());
    EXPECT_EQ(test::pixels_of(view, all), test::pixels_of(expected, all));
  }
  EXPECT_NE(after->name(0).find("000000000.40x30.pixels"), std::string::npos) << after->name(0);

  // Packing raw images again keeps every byte.
  tools::PackOptions again = raw_options(folder);
  again.source = folder.path("out");
  again.target = folder.path("again");
  tools::pack(again);
  EXPECT_EQ(read_bytes(folder.path("out/train-000000.tar")),
            read_bytes(folder.path("again/train-000000.tar")));
}

/// Returns the bytes of this process's mappings of a file.
std::size_t mapped_bytes(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  std::size_t total = 0;
  for (std::string line; std::getline(maps, line);) {
    std::size_t end = 0;
    if (!line.ends_with(path)) continue;
    const std::size_t begin = std::stoull(line, &end, 16);
    total += std::stoull(line.substr(end + 1), nullptr, 16) - begin;
  }
  return total;
}

TEST(RawPack, IsReadInPlaceFromABoundedMapping) {
  const TempFolder folder;
  constexpr Size kLarge{300, 200}, kSmall{20, 30};
  for (int i = 0; i < 8; ++i)
    folder.write(fmt::format("src/a/{}.pixels", i), raw_noise(i == 5 ? kSmall : kLarge));
  tools::pack(raw_options(folder));
  const std::string file = folder.path("out/train-000000.tar");
  const Bytes archive = read_bytes(file);
  const auto reader = open_reader({"tar", folder.path("out")});
  Buffer one, two;
  for (const std::uint64_t i : {0, 3, 5, 7}) {
    const Sample sample = reader->read(i, one);
    EXPECT_EQ(sample.bytes.data() == one.data(), i == 5) << "only a small image is copied";
    Location location;
    ASSERT_TRUE(reader->locate(i, location));
    EXPECT_TRUE(
        std::equal(sample.bytes.begin(), sample.bytes.end(),
                   archive.begin() + static_cast<std::ptrdiff_t>(location.offset),
                   archive.begin() + static_cast<std::ptrdiff_t>(location.offset + location.size)));
    EXPECT_LE(mapped_bytes(file), std::size_t{300 * 200 * 3 + 3 * 4096}) << "one image";
    EXPECT_GT(mapped_bytes(file), std::size_t{300 * 200 * 3});
  }
  const Sample first = reader->read(0, one), last = reader->read(7, two);
  EXPECT_NO_THROW(check_raw_pixels(first.bytes));
  EXPECT_NO_THROW(check_raw_pixels(last.bytes));
  const std::size_t before = mapped_bytes(file);
  two = Buffer();
  EXPECT_LT(mapped_bytes(file), before) << "a mapping ends with its buffer";
  EXPECT_NO_THROW(check_raw_pixels(first.bytes));
}

TEST(RawPack, AnArchiveThatIsCutShortMeanwhileFailsItsSample) {
  const TempFolder folder;
  for (int i = 0; i < 3; ++i)
    folder.write(fmt::format("src/a/{}.pixels", i), raw_noise({300, 200}));
  tools::pack(raw_options(folder));
  const auto reader = open_reader({"tar", folder.path("out")});
  Buffer scratch;
  const Sample mapped = reader->read(2, scratch);
  fs::resize_file(folder.path("out/train-000000.tar"), 250'000);
  EXPECT_EQ(mapped.bytes.back(), 0) << "lost pages are read as zeros, and the process lives on";
  expect_data_error({"changed while the set is in use"}, [&] { reader->read(2, scratch); });
  EXPECT_NO_THROW(check_raw_pixels(reader->read(0, scratch).bytes));
}

TEST(RawPack, TheFingerprintHoldsTheGeometry) {
  std::uint64_t seen[2];
  for (const bool upright : {false, true}) {
    const TempFolder folder;
    const Size size = upright ? Size{20, 30} : Size{30, 20};
    folder.write("src/a/0.pixels", raw_noise(size));  // as many bytes either way
    tools::pack(raw_options(folder));
    seen[upright] = open_reader({"tar", folder.path("out")})->info().fingerprint;
  }
  EXPECT_NE(seen[0], seen[1]);
}

TEST(RawPack, NothingIsEnlargedAndOrientationIsApplied) {
  const TempFolder folder;
  folder.write("src/a/0.jpg", tools::encode_jpeg(test::ramp({80, 60}), {80, 60}, 90));
  folder.write("src/a/1.jpg", tools::encode_jpeg(test::ramp({20, 30}), {20, 30}, 90));
  Bytes turned = tools::encode_jpeg(test::ramp({80, 60}), {80, 60}, 90);
  const Bytes exif = {0xff, 0xe1, 0,    34, 'E', 'x', 'i', 'f', 0, 0, 'I', 'I', '*', 0, 8, 0, 0, 0,
                      1,    0,    0x12, 1,  3,   0,   1,   0,   0, 0, 6,   0,   0,   0, 0, 0, 0, 0};
  turned.insert(turned.begin() + 2, exif.begin(), exif.end());
  folder.write("src/a/2.jpg", turned);
  tools::PackOptions options = raw_options(folder);
  options.shrink.short_side = 40;
  tools::pack(options);
  const auto reader = open_reader({"tar", folder.path("out")});
  const Size sizes[] = {{53, 40}, {20, 30}, {40, 53}};
  Buffer scratch;
  for (std::uint64_t i = 0; i < 3; ++i)
    EXPECT_EQ(parse_raw(reader->read(i, scratch).bytes).size, sizes[i]) << i;
  // Columns of the stored ramp run down the turned image.
  const RawImage image = parse_raw(reader->read(2, scratch).bytes);
  const ImageView view = interleaved(image.pixels, image.size, image.channels);
  EXPECT_LT(*view.at(20, 2, 0), *view.at(20, 50, 0));
}

TEST(RawPack, VerifyFindsPixelsThatChanged) {
  const TempFolder folder;
  test::TarBuilder tar;
  Bytes bad = raw_noise({9, 9});
  bad.back() ^= 1;
  tar.add("0.9x9.pixels", raw_noise({9, 9})).add("0.cls", "0");
  tar.add("1.9x9.pixels", bad).add("1.cls", "0");
  folder.write("set/train.tar", tar.end());
  const tools::VerifyReport report =
      tools::verify_data({.path = folder.path("set"), .progress = {}});
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_NE(report.problems[0].where.find("1.9x9.pixels"), std::string::npos);
  EXPECT_NE(report.problems[0].what.find("checksum of its pixels"), std::string::npos);
}

}  // namespace
}  // namespace millrace::pipeline
