// Decoders from plugins: the shipped one's formats.
#include <gtest/gtest.h>
#include <zlib.h>

#include <thread>

#include "pipeline/decoder.h"
#include "tests/data/support.h"

namespace millrace {
namespace {

using test::append_big_endian;
using test::Bytes;
using test::cut;
using test::expect_data_error;

constexpr std::uint64_t kNoLimit = 1'000'000'000;
constexpr Size kSize{53, 37};

/// A colour ramp.
Bytes ramp(Size size) {
  Bytes pixels;
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x)
      for (const int value : {x * 200 / size.width, y * 200 / size.height, 90})
        pixels.push_back(static_cast<std::uint8_t>(value));
  return pixels;
}

void append_chunk(Bytes& png, const char* type, const Bytes& data) {
  append_big_endian(png, static_cast<std::uint32_t>(data.size()));
  Bytes body(type, type + 4);
  body.insert(body.end(), data.begin(), data.end());
  png.insert(png.end(), body.begin(), body.end());
  append_big_endian(
      png, static_cast<std::uint32_t>(crc32(0, body.data(), static_cast<uInt>(body.size()))));
}

/// 8 bits a channel, 1 (gray) or 3 (RGB).
Bytes png(Size size, const Bytes& pixels, std::uint8_t channels) {
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
  append_chunk(file, "IDAT", packed);
  append_chunk(file, "IEND", {});
  return file;
}

/// 2x1, red then blue; rows run from the top if `top_down`.
Bytes bmp(bool top_down) {
  Bytes file{'B', 'M', 62, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40,
             0,   0,   0,  2, 0, 0, 0, 1, 0, 0, 0,  1, 0, 24};
  if (top_down) file[22] = file[23] = file[24] = file[25] = 0xff;
  file.resize(54);
  for (const int byte : {0, 0, 255, 255, 0, 0, 0, 0})
    file.push_back(static_cast<std::uint8_t>(byte));
  return file;
}

/// 2x1 gray, 10 and 200, uncompressed, little endian.
Bytes tiff() {
  Bytes file{'I', 'I', 42, 0, 10, 0, 0, 0, 10, 200, 9, 0};
  const auto entry = [&file](int tag, int value) {
    for (const int number : {tag, 3, 1, 0, value, 0}) {
      file.push_back(static_cast<std::uint8_t>(number));
      file.push_back(static_cast<std::uint8_t>(number >> 8));
    }
  };
  entry(256, 2);
  entry(257, 1);
  entry(258, 8);
  entry(259, 1);
  entry(262, 1);
  entry(273, 8);
  entry(277, 1);
  entry(278, 1);
  entry(279, 2);
  file.resize(file.size() + 4);
  return file;
}

/// 3x2, lossless; pixel (x, y) is (100 x, 200 y, 50).
const Bytes kWebp{0x52, 0x49, 0x46, 0x46, 0x36, 0x00, 0x00, 0x00, 0x57, 0x45, 0x42, 0x50, 0x56,
                  0x50, 0x38, 0x4c, 0x29, 0x00, 0x00, 0x00, 0x2f, 0x02, 0x40, 0x00, 0x00, 0x2f,
                  0x20, 0x16, 0x4c, 0x86, 0x95, 0xff, 0x15, 0xa2, 0x40, 0x20, 0xc9, 0x9f, 0x61,
                  0xa0, 0xb1, 0x46, 0x66, 0xfe, 0x83, 0x87, 0x09, 0x62, 0x80, 0x40, 0x80, 0x32,
                  0x56, 0x1c, 0x73, 0x41, 0x44, 0xff, 0x63, 0x7d, 0x00, 0x00};

Bytes decoded(const Bytes& file, int channels, std::uint64_t max_pixels = kNoLimit) {
  DecodeScratch scratch;
  const ImageView image = scratch.decode(file, channels, max_pixels);
  EXPECT_EQ(image.channels, channels);
  return {image.data, image.data + image.height * image.row};
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
  EXPECT_EQ(decoded(tiff(), 1), (Bytes{10, 200}));
  EXPECT_EQ(decoded(kWebp, 3),
            (Bytes{0, 0, 50, 100, 0, 50, 200, 0, 50, 0, 200, 50, 100, 200, 50, 200, 200, 50}));
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

TEST(Imgcodecs, FirstUseFromManyThreads) {
  const Bytes file = png(kSize, ramp(kSize), 3);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&file] { EXPECT_EQ(decoded(file, 3), ramp(kSize)); });
}

TEST(Imgcodecs, MaxPixelsIsCheckedBeforeDecoding) {
  Bytes huge = png({2, 1}, {1, 2}, 1);
  huge[16] = 0x10;
  expect_data_error({"png: 268435458x1", "data.max_pixels"}, [&] { decoded(huge, 1, 1000); });
  huge[20] = 0xff;
  expect_data_error({"png:", "pixels is no image"}, [&] { decoded(huge, 1, ~std::uint64_t{0}); });
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
}  // namespace millrace
