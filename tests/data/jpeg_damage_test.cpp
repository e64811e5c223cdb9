// Tests JPEGs that are damaged, hostile or unsupported: each gives one clear line, takes little
// memory, and leaves the next image unaffected.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <fstream>

#include "millrace/limits.h"
#include "pipeline/decoders/decoder.h"
#include "tests/data/jpeg_forms.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::cut;
using test::JpegForm;

constexpr Size kImageSize{53, 37};

Bytes jpeg(const JpegForm& form) { return test::jpeg(kImageSize, form, test::ramp(kImageSize)); }

/// Returns the offset of the segment with this marker (at its 0xff).
std::size_t find_marker(const Bytes& file, int marker) {
  for (std::size_t at = 2; at + 1 < file.size(); ++at)
    if (file[at] == 0xff && file[at + 1] == marker) return at;
  ADD_FAILURE() << "no marker " << marker;
  return 0;
}

/// Returns the offset of the first scan's coded data.
std::size_t find_data(const Bytes& file) {
  const std::size_t scan = find_marker(file, 0xda);
  return scan + 2 + file[scan + 2] * 256u + file[scan + 3];
}

/// Returns the file with another size in its header. `frame` is the frame's marker, 0xc0 in
/// baseline files.
Bytes resized(Bytes file, int frame, int width, int height) {
  const std::size_t at = find_marker(file, frame) + 5;
  file[at] = static_cast<std::uint8_t>(height >> 8);
  file[at + 1] = static_cast<std::uint8_t>(height);
  file[at + 2] = static_cast<std::uint8_t>(width >> 8);
  file[at + 3] = static_cast<std::uint8_t>(width);
  return file;
}

/// Expects that decoding `bad` fails with a line that holds `part`, and that the same scratch still
/// works.
void expect_refused(const Bytes& bad, const std::string& part) {
  static const Bytes good = jpeg({});
  DecodeScratch scratch;
  for (int i = 0; i < 2; ++i) {
    test::expect_data_error({part}, [&] { scratch.decode(bad, 3, kMaxPixels); });
    EXPECT_EQ(scratch.decode(good, 3, kMaxPixels).size(), kImageSize);
  }
}

constexpr int kBaseline = 0xc0, kProgressive = 0xc2;

TEST(JpegDamage, Sizes) {
  expect_refused(resized(jpeg({}), kBaseline, 0, 37), "jpeg: Empty JPEG image");
  expect_refused(resized(jpeg({}), kBaseline, 53, 0), "jpeg: Empty JPEG image");
  expect_refused(resized(jpeg({}), kBaseline, 0, 0), "jpeg: Empty JPEG image");
  expect_refused(cut(resized(jpeg({}), kBaseline, 65535, 65535), 700), "jpeg: Maximum supported");
  expect_refused(cut(resized(jpeg({}), kBaseline, 65500, 65500), 700),
                 "jpeg: 65500x65500 pixels in 700 bytes: it was cut short");
}

TEST(JpegDamage, Forms) {
  Bytes twelve = jpeg({});
  twelve[find_marker(twelve, kBaseline) + 4] = 12;
  expect_refused(twelve, "jpeg: samples of other than 8 bits are not supported");
  Bytes lossless = jpeg({});
  lossless[find_marker(lossless, kBaseline) + 1] = 0xc3;
  expect_refused(lossless, "jpeg: Unsupported JPEG process");
  expect_refused({0xff, 0xd8, 0xff}, "jpeg: Premature end of JPEG file");
  expect_refused({0xff, 0xd8, 0xff, 0xd9}, "jpeg: JPEG datastream contains no image");
  // Tables alone, as in TIFF files.
  const Bytes file = jpeg({});
  Bytes tables = cut(file, find_marker(file, kBaseline));
  tables.insert(tables.end(), {0xff, 0xd9});
  expect_refused(tables, "jpeg: JPEG datastream contains no image");
}

TEST(JpegDamage, CodedData) {
  const Bytes good = jpeg({});
  Bytes bad = good;
  for (std::size_t at = find_data(bad) + 100, i = 0; i < 40; ++i)
    bad[at + i] = i % 2 == 0 ? 0xff : 0;  // ones; no code is all ones
  expect_refused(bad, "jpeg: Corrupt JPEG data");
  bad = good;
  bad[find_marker(bad, 0xc4) + 5] = 0xff;  // a table with 255 codes of one bit
  expect_refused(bad, "jpeg: Bogus Huffman table definition");
  bad = good;
  bad[find_marker(bad, 0xda) + 6] = 0x22;  // a table that does not exist
  expect_refused(bad, "jpeg: Huffman table 0x02 was not defined");
}

/// Returns the file without its segments with this marker.
Bytes without(Bytes file, int marker) {
  for (std::size_t at = 2; file[at + 1] != 0xda;) {
    const std::size_t behind = at + 2 + file[at + 2] * 256u + file[at + 3];
    if (file[at + 1] == marker)
      file.erase(file.begin() + static_cast<std::ptrdiff_t>(at),
                 file.begin() + static_cast<std::ptrdiff_t>(behind));
    else
      at = behind;
  }
  return file;
}

/// libjpeg would take those of the image before, whichever that was.
TEST(JpegDamage, TablesOfAnotherImageAreNotTaken) {
  const Bytes whole = jpeg({}), motion = without(whole, 0xc4);
  expect_refused(without(whole, 0xdb), "jpeg: Quantization table 0x00 was not defined");
  // Frames of Motion JPEG have no Huffman tables: they are those of the standard.
  const auto pixels_after = [&](const std::vector<Bytes>& before) {
    DecodeScratch scratch;
    for (const Bytes& file : before) scratch.decode(file, 3, kMaxPixels);
    return test::pixels_of(scratch.decode(motion, 3, kMaxPixels));
  };
  const Bytes alone = pixels_after({});
  DecodeScratch scratch;
  EXPECT_EQ(alone, test::pixels_of(scratch.decode(whole, 3, kMaxPixels)));
  const Bytes other = jpeg({.progressive = true});  // has tables of its own
  EXPECT_EQ(pixels_after({other}), alone);
  EXPECT_EQ(pixels_after({whole, other, other}), alone);
  // Images take the memory of tables again.
  EXPECT_EQ(pixels_after(std::vector<Bytes>(20, other)), alone);
}

TEST(JpegDamage, RestartMarkers) {
  const Bytes good = jpeg({.restart_blocks = 2});
  const std::size_t second = find_marker(good, 0xd1);
  Bytes wrong = good, none = good, twice = good;
  wrong[second + 1] = 0xd5;
  expect_refused(wrong, "jpeg: Corrupt JPEG data: found marker 0xd5 instead of RST1");
  none.erase(none.begin() + static_cast<std::ptrdiff_t>(second),
             none.begin() + static_cast<std::ptrdiff_t>(second + 2));
  expect_refused(none, "jpeg: Corrupt JPEG data");
  twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(second), {0xff, 0xd1});
  expect_refused(twice, "jpeg: Corrupt JPEG data");
}

TEST(JpegDamage, App1) {
  for (const Bytes& body : {Bytes{}, Bytes(65533, 0xff), test::exif(6)}) {
    Bytes file = jpeg({});
    Bytes segment{0xff, 0xe1, static_cast<std::uint8_t>((body.size() + 2) >> 8),
                  static_cast<std::uint8_t>(body.size() + 2)};
    segment.insert(segment.end(), body.begin(), body.end());
    file.insert(file.begin() + 2, segment.begin(), segment.end());
    DecodeScratch scratch;
    scratch.decode(file, 3, kMaxPixels);
    EXPECT_EQ(scratch.image().stored, kImageSize);
    for (const std::size_t size : {std::size_t{4}, std::size_t{5}, segment.size() / 2 + 3})
      expect_refused(cut(file, size), "jpeg: Premature end of JPEG file");
    file[4] = 0;
    file[5] = 1;
    expect_refused(file, "jpeg: Bogus marker length");
  }
}

/// Data behind a region is never read; data before it is read and checked.
TEST(JpegDamage, CountsUpToTheRegionsEnd) {
  const Size size{200, 160};
  const Bytes rgb = test::noise(size);
  const Bytes good = test::jpeg(size, {}, rgb), good_marked = test::jpeg(size, {.restart = 1}, rgb);
  DecodeScratch whole, part;
  for (const bool marked : {false, true}) {
    const ImageView all = whole.decode(marked ? good_marked : good, 3, kMaxPixels);
    // Truncates in the middle, or overwrites there. (libjpeg silently takes an unknown code for the
    // end of a block, except near restart markers and the file's end.)
    Bytes bad = marked ? good_marked : cut(good, good.size() / 2);
    if (marked)
      for (std::size_t at = bad.size() / 2, i = 0; i < 40; ++i) bad[at + i] = i % 2 == 0 ? 0xff : 0;
    const char* what = marked ? "jpeg: Corrupt JPEG data" : "jpeg: Premature end of JPEG file";
    const Rect top{20, 8, 180, 40};
    part.open(bad, kMaxPixels);
    const ImageView image = part.decode(3, top);
    for (int y = top.y0; y < top.y1; ++y)
      for (int x = top.x0; x < top.x1; ++x)
        for (int c = 0; c < 3; ++c) ASSERT_EQ(*image.at(x, y, c), *all.at(x, y, c));
    // Left and right of the damage, below it, and everything.
    for (const Rect& rect : {Rect{0, 70, 20, 100}, Rect{180, 70, 200, 100}, Rect{20, 130, 180, 150},
                             Rect{0, 0, 200, 160}})
      test::expect_data_error({what}, [&] { part.decode(3, rect); });
    part.decode(3, top);
  }
  // All scans of a progressive file are read before the first row.
  const Bytes scans = test::jpeg(size, {JCS_YCbCr, true}, rgb);
  const Bytes half = cut(scans, scans.size() / 2);
  part.open(half, kMaxPixels);
  test::expect_data_error({"jpeg: Premature end of JPEG file"}, [&] {
    part.decode(3, {20, 8, 180, 40});
  });
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
std::uint64_t address_space() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Ends the process with 0 if `file` is rejected with `part` within `more` bytes of memory.
void decode_within(std::uint64_t more, const Bytes& file, const std::string& part) {
  const rlimit limit{address_space() + more, address_space() + more};
  setrlimit(RLIMIT_AS, &limit);
  try {
    DecodeScratch().decode(file, 3, kMaxPixels);
    std::_Exit(1);
  } catch (const DataError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(std::string(error.what()).find(part) != std::string::npos ? 0 : 2);
  } catch (...) {
    std::_Exit(3);
  }
}

TEST(JpegDamage, LittleMemoryForLittleBytes) {
  constexpr std::uint64_t kMiB = 1 << 20;
  // Below data.max_pixels, so the header alone would lead to 400 MB.
  const Bytes progressive = cut(resized(jpeg({JCS_YCbCr, true}), kProgressive, 8000, 8000), 400);
  EXPECT_EXIT(decode_within(8 * kMiB, progressive, "8000x8000 pixels in 400 bytes"),
              testing::ExitedWithCode(0), "");
  // The fewest bytes that so many blocks can take: 2.4 million pixels, 7 MiB of coefficients.
  Bytes padded = resized(jpeg({JCS_YCbCr, true}), kProgressive, 1550, 1550);
  padded.resize(find_data(padded) + 8000);
  EXPECT_EXIT(decode_within(20 * kMiB, padded, "jpeg: "), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace millrace::pipeline
