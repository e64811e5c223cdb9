// Tests decoders from plugins: the formats of the shipped one.
#include <gtest/gtest.h>
#include <zlib.h>

#include <iostream>
#include <thread>

#include "pipeline/decoders/decoder.h"
#include "tests/data/jpeg_forms.h"
#include "tests/data/support.h"

namespace millrace::pipeline {
namespace {

using test::append_big_endian;
using test::Bytes;
using test::cut;
using test::expect_data_error;
using test::ramp;

constexpr std::uint64_t kNoLimit = 1'000'000'000;
constexpr Size kSize{53, 37};

void append_chunk(Bytes& png, const char* type, const Bytes& data) {
  append_big_endian(png, static_cast<std::uint32_t>(data.size()));
  Bytes body(type, type + 4);
  body.insert(body.end(), data.begin(), data.end());
  png.insert(png.end(), body.begin(), body.end());
  append_big_endian(
      png, static_cast<std::uint32_t>(crc32(0, body.data(), static_cast<uInt>(body.size()))));
}

/// Returns EXIF's TIFF structure alone, with an orientation.
Bytes exif(int orientation) {
  const Bytes body = test::exif(orientation);
  return {body.begin() + 6, body.end()};
}

/// Returns a PNG with 8 bits per channel, gray (1) or RGB (3).
Bytes png(Size size, const Bytes& pixels, std::uint8_t channels, const Bytes& before = {},
          const Bytes& behind = {}) {
  Bytes header;
  append_big_endian(header, static_cast<std::uint32_t>(size.width));
  append_big_endian(header, static_cast<std::uint32_t>(size.height));
  for (const int byte : {8, channels == 1 ? 0 : 2, 0, 0, 0})
    header.push_back(static_cast<std::uint8_t>(byte));
  Bytes rows;
  const std::size_t row = static_cast<std::size_t>(size.width) * channels;
  for (std::size_t at = 0; at < pixels.size(); at += row) {
    rows.push_back(0);  // no filter
    rows.insert(rows.end(), pixels.begin() + static_cast<std::ptrdiff_t>(at),
                pixels.begin() + static_cast<std::ptrdiff_t>(at + row));
  }
  uLongf packed_size = compressBound(rows.size());
  Bytes packed(packed_size);
  compress(packed.data(), &packed_size, rows.data(), rows.size());
  packed.resize(packed_size);
  Bytes file{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  append_chunk(file, "IHDR", header);
  if (!before.empty()) append_chunk(file, "eXIf", before);
  append_chunk(file, "IDAT", packed);
  if (!behind.empty()) append_chunk(file, "eXIf", behind);
  append_chunk(file, "IEND", {});
  return file;
}

/// Returns a BMP of 2x1, red then blue; rows run from the top if `top_down`.
Bytes bmp(bool top_down) {
  Bytes file{'B', 'M', 62, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40,
             0,   0,   0,  2, 0, 0, 0, 1, 0, 0, 0,  1, 0, 24};
  if (top_down) file[22] = file[23] = file[24] = file[25] = 0xff;
  file.resize(54);
  for (const int byte : {0, 0, 255, 255, 0, 0, 0, 0})
    file.push_back(static_cast<std::uint8_t>(byte));
  return file;
}

/// Returns a gray, uncompressed, little-endian TIFF in one strip; pixels are 10, 20, 30 ...
Bytes tiff(Size size = {2, 1}, int orientation = 1) {
  const int count = size.width * size.height;
  Bytes file{'I', 'I', 42, 0, static_cast<std::uint8_t>(8 + count + count % 2), 0, 0, 0};
  for (int i = 1; i <= count + count % 2; ++i) file.push_back(static_cast<std::uint8_t>(10 * i));
  file.insert(file.end(), {10, 0});
  const auto entry = [&file](int tag, int value) {
    for (const int number : {tag, 3, 1, 0, value, 0}) {
      file.push_back(static_cast<std::uint8_t>(number));
      file.push_back(static_cast<std::uint8_t>(number >> 8));
    }
  };
  entry(256, size.width);
  entry(257, size.height);
  entry(258, 8);
  entry(259, 1);
  entry(262, 1);
  entry(273, 8);
  entry(274, orientation);
  entry(277, 1);
  entry(278, size.height);
  entry(279, count);
  file.resize(file.size() + 4);
  return file;
}

/// A lossless WebP of 3x2; pixel (x, y) is (100 x, 200 y, 50).
const Bytes kWebp{0x52, 0x49, 0x46, 0x46, 0x36, 0x00, 0x00, 0x00, 0x57, 0x45, 0x42, 0x50, 0x56,
                  0x50, 0x38, 0x4c, 0x29, 0x00, 0x00, 0x00, 0x2f, 0x02, 0x40, 0x00, 0x00, 0x2f,
                  0x20, 0x16, 0x4c, 0x86, 0x95, 0xff, 0x15, 0xa2, 0x40, 0x20, 0xc9, 0x9f, 0x61,
                  0xa0, 0xb1, 0x46, 0x66, 0xfe, 0x83, 0x87, 0x09, 0x62, 0x80, 0x40, 0x80, 0x32,
                  0x56, 0x1c, 0x73, 0x41, 0x44, 0xff, 0x63, 0x7d, 0x00, 0x00};

Bytes decoded(const Bytes& file, int channels, std::uint64_t max_pixels = kNoLimit) {
  DecodeScratch scratch;
  const ImageView image = scratch.decode(file, channels, max_pixels);
  EXPECT_EQ(image.channels, channels);
  return test::pixels_of(image);
}

TEST(Imgcodecs, Png) {
  const Bytes pixels = ramp(kSize);
  EXPECT_EQ(decoded(png(kSize, pixels, 3), 3), pixels);
  const Bytes gray(pixels.begin(), pixels.begin() + 53 * 37);
  EXPECT_EQ(decoded(png(kSize, gray, 1), 1), gray);
}

TEST(Imgcodecs, BmpWebpTiff) {
  EXPECT_EQ(decoded(bmp(false), 3), (Bytes{255, 0, 0, 0, 0, 255}));
  EXPECT_EQ(decoded(bmp(true), 3), (Bytes{255, 0, 0, 0, 0, 255}));
  EXPECT_EQ(decoded(tiff(), 1), (Bytes{10, 20}));
  EXPECT_EQ(decoded(kWebp, 3),
            (Bytes{0, 0, 50, 100, 0, 50, 200, 0, 50, 0, 200, 50, 100, 200, 50, 200, 200, 50}));
}

/// Returns a WebP file in its extended form, with EXIF.
Bytes extended_webp(const Bytes& exif) {
  Bytes file{'R', 'I', 'F', 'F', 0, 0, 0, 0, 'W', 'E', 'B', 'P', 'V', 'P', '8',
             'X', 10,  0,   0,   0, 8, 0, 0, 0,   2,   0,   0,   1,   0,   0};
  file.reserve(256);  // otherwise GCC 12 warns of an overrun
  file.insert(file.end(), kWebp.begin() + 12, kWebp.end());
  file.insert(file.end(), {'E', 'X', 'I', 'F', static_cast<std::uint8_t>(exif.size()), 0, 0, 0});
  file.insert(file.end(), exif.begin(), exif.end());
  file[4] = static_cast<std::uint8_t>(file.size() - 8);
  return file;
}

Bytes seen(const Bytes& file, int orientation) {
  DecodeScratch scratch;
  const ImageView image = scratch.decode(file, 3, kNoLimit);
  EXPECT_EQ(scratch.image().orientation, orientation);
  return test::pixels_of(image);
}

TEST(Imgcodecs, Orientation) {
  const Bytes red_blue{255, 0, 0, 0, 0, 255}, blue_red{0, 0, 255, 255, 0, 0};
  EXPECT_EQ(seen(png({2, 1}, red_blue, 3, exif(2)), 2), blue_red);
  EXPECT_EQ(seen(png({2, 1}, red_blue, 3, {}, exif(2)), 2), blue_red);
  EXPECT_EQ(seen(png({2, 1}, red_blue, 3, exif(8)), 8), blue_red);
  EXPECT_EQ(seen(png({2, 1}, red_blue, 3, exif(6)), 6), red_blue);
  EXPECT_EQ(seen(png({2, 1}, red_blue, 3, {1, 2, 3}), 1), red_blue);
  const Bytes stored = decoded(kWebp, 3);
  EXPECT_EQ(seen(extended_webp(exif(1)), 1), stored);
  Bytes half_turn;
  for (std::size_t i = stored.size(); i > 0; i -= 3)
    half_turn.insert(half_turn.end(), {stored[i - 3], stored[i - 2], stored[i - 1]});
  EXPECT_EQ(seen(extended_webp(exif(3)), 3), half_turn);
  EXPECT_EQ(seen(extended_webp(test::exif(3)), 3), half_turn);
}

/// OpenCV turns TIFF itself.
TEST(Imgcodecs, OrientationOfTiff) {
  const Size stored{3, 2};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    DecodeScratch scratch;
    const ImageView image = scratch.decode(tiff(stored, orientation), 1, kNoLimit);
    ASSERT_EQ(image.size(), orientation < 5 ? stored : (Size{2, 3}));
    for (int y = 0; y < image.height; ++y)
      for (int x = 0; x < image.width; ++x) {
        const auto [u, v] = test::stored_place(orientation, stored, x, y);
        EXPECT_EQ(*image.at(x, y), 10 * (1 + v * 3 + u)) << orientation << " at " << x << " " << y;
      }
  }
}

TEST(Imgcodecs, PngNamedJpg) {
  const test::TempFolder folder;
  folder.write("a/1.jpg", png(kSize, ramp(kSize), 3));
  const auto reader = open_reader({"folder", folder.path(), "train", 0});
  EXPECT_EQ(decoded(test::bytes_of(*reader, 0), 3), ramp(kSize));
}

TEST(Imgcodecs, CutFilesFail) {
  const Bytes picture = png(kSize, ramp(kSize), 3);
  for (const Bytes& file : {picture, bmp(false), kWebp, tiff()})
    for (const std::size_t size : {file.size() / 2, file.size() * 3 / 4, file.size() - 14})
      EXPECT_THROW(decoded(cut(file, size), 3), DataError)
          << size << " of " << file.size() << " of the file that starts with " << file[0];
  Bytes damaged = picture;
  damaged[damaged.size() / 2] ^= 0x55;
  EXPECT_THROW(decoded(damaged, 3), DataError);
}

/// Writes a number of `size` bytes, least significant first.
void put(Bytes& file, std::size_t at, std::uint32_t value, int size = 4) {
  for (int i = 0; i < size; ++i)
    file[at + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(value >> 8 * i);
}

TEST(Imgcodecs, AFileHoldsNoMorePixelsThanItsBytesCan) {
  // 8000x8000 is within data.max_pixels, so that no other check rejects it.
  constexpr std::uint32_t kSide = 8000;
  const auto refused = [](const Bytes& file, const char* format) {
    expect_data_error({format, "cut short, or its header is damaged"},
                      [&] { DecodeScratch().open(file, kNoLimit); });
  };
  Bytes file = png(kSize, ramp(kSize), 3);
  file[18] = file[22] = kSide >> 8;
  file[19] = file[23] = kSide & 0xff;
  refused(file, "png: 8000x8000 pixels");
  file = test::bmp(10, 10);
  put(file, 18, kSide);
  put(file, 22, kSide);
  refused(file, "bmp");
  put(file, 30, 1);  // RLE
  refused(file, "bmp: 8000x8000 pixels");
  file = kWebp;
  put(file, 21, (kSide - 1) | (kSide - 1) << 14);
  refused(cut(file, 34), "webp: 8000x8000 pixels");
  file = tiff({2, 1});
  for (const int compression : {1, 4, 5, 8, 7, 32773}) {
    Bytes one = file;
    put(one, 12 + 8, kSide, 2);
    put(one, 12 + 12 + 8, compression == 4 ? 60'000 : kSide, 2);
    put(one, 12 + 36 + 8, static_cast<std::uint32_t>(compression), 2);
    refused(one, "tiff");
  }
  // Plain pictures pack tightly: a file passes if deflate could make it as small.
  const Size plain{3000, 2000};
  EXPECT_EQ(decoded(png(plain, Bytes(3000 * 2000, 9), 1), 1), Bytes(3000 * 2000, 9));
}

TEST(Imgcodecs, WhatLibrariesSayComesWithTheError) {
  Bytes damaged = png(kSize, ramp(kSize), 3);
  damaged[damaged.size() / 2] ^= 0x55;
  Bytes odd = kWebp;
  odd[40] ^= 0xff;
  testing::internal::CaptureStderr();
  expect_data_error({"png: IDAT: "}, [&] { decoded(damaged, 3); });
  expect_data_error({"webp: damaged or cut short"}, [&] { decoded(cut(odd, 50), 3); });
  Bytes elsewhere = tiff();
  put(elsewhere, 12 + 5 * 12 + 8, 5000, 2);  // position of its pixels
  expect_data_error({"tiff: damaged or cut short"}, [&] { decoded(elsewhere, 3); });
  std::cerr << "others' lines";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "others' lines");
}

TEST(Imgcodecs, FirstUseFromManyThreads) {
  const Bytes file = png(kSize, ramp(kSize), 3);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&file] { EXPECT_EQ(decoded(file, 3), ramp(kSize)); });
}

TEST(Imgcodecs, LimitsAreCheckedBeforeDecoding) {
  Bytes file = png({70, 1}, Bytes(70), 1);
  expect_data_error({"png: 70x1 is 70 pixels, more than data.max_pixels=69"},
                    [&] { decoded(file, 1, 69); });
  file[17] = 1;  // 65536 more, which deflate could still hold
  expect_data_error({"png: 65606x1: sides of more than 65535 pixels"},
                    [&] { decoded(file, 1, kNoLimit); });
  file[17] = file[19] = 0;
  expect_data_error({"png: 0x1 pixels is not an image"}, [&] { decoded(file, 1, kNoLimit); });
}

TEST(Decode, UnknownBytesAreDescribed) {
  const auto text = [](const std::string& start) { return Bytes(start.begin(), start.end()); };
  expect_data_error({"looks like an empty file"}, [] { decoded({}, 3); });
  expect_data_error({"looks like a GIF image"}, [&] { decoded(text("GIF89a..."), 3); });
  expect_data_error({"a Git LFS pointer"},
                    [&] { decoded(text("version https://git-lfs.github.com/spec/v1"), 3); });
  expect_data_error({"5 bytes that start with 68 65 6c 6c 6f"}, [&] { decoded(text("hello"), 3); });
}

}  // namespace
}  // namespace millrace::pipeline
