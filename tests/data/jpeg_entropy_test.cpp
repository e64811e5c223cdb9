// Tests that millrace's Huffman decoder changes nothing but time: pixels, errors and their words
// equal those of libjpeg-turbo alone, and files that it is made for are not left to libjpeg-turbo.
#include <gtest/gtest.h>

#include <csetjmp>
#include <cstdlib>

#include "millrace/loader.h"
#include "millrace/plan.h"
#include "millrace/reader.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/decoders/jpeg/jpeg.h"
#include "tests/data/jpeg_forms.h"
#include "tests/data/jpeg_writer.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;

constexpr std::uint64_t kMaxTestPixels = 100'000'000;

Draw draws(std::uint32_t number) {
  return Draw(base::stream({12, 0, number}, base::op_id("jpeg")));
}

/// Result of a decode.
struct Outcome {
  std::string error;  ///< empty for success
  Bytes pixels;
  bool operator==(const Outcome&) const = default;
};

/// The part of an image that a decode asks for.
struct Part {
  Rect rect;  ///< empty: all
  int channels = 3;
  int scale = 0;
};

Outcome outcome(DecodeScratch& scratch, const Bytes& file, const Part& part) {
  try {
    const Size size = scratch.open(file, kMaxTestPixels).size;
    const auto scaled = [&](int side) { return (side + (1 << part.scale) - 1) >> part.scale; };
    const Rect all{0, 0, scaled(size.width), scaled(size.height)};
    const Rect rect = part.rect.x1 > part.rect.x0 ? part.rect : all;
    return {"", test::pixels_of(scratch.decode(part.channels, rect, part.scale), rect)};
  } catch (const DataError& error) {
    return {std::string(error.what()) + " | " + error.hint(), {}};
  }
}

/// Decodes files with both decoders.
class Pair {
 public:
  Pair() { theirs_.use_libjpeg(true); }

  /// Expects equal outcomes. Returns what both made of the file.
  Outcome expect_equal(const Bytes& file, const Part& part = {}) {
    const Outcome expected = outcome(theirs_, file, part), found = outcome(ours_, file, part);
    EXPECT_EQ(found.error, expected.error);
    EXPECT_TRUE(found.pixels == expected.pixels) << "pixels differ";
    return found;
  }
  /// Expects equal outcomes, and that millrace decodes the file.
  void expect_ours(const Bytes& file, const Part& part = {}) {
    const JpegCounts before = jpeg_counts();
    EXPECT_EQ(expect_equal(file, part).error, "");
    const JpegCounts after = jpeg_counts();
    for (std::size_t i = 0; i < kJpegRoutes; ++i) {
      const auto route = static_cast<JpegRoute>(i);
      const bool counts = route == JpegRoute::own || route == JpegRoute::asked;
      EXPECT_EQ(after[i] - before[i], counts ? 1 : 0) << name_of(route);
    }
  }
  /// Expects what expect_ours() does, or a refusal by both decoders: libjpeg-turbo may not upsample
  /// the sampling or convert the colours. Returns whether the file was decoded.
  bool expect_ours_or_refused(const Bytes& file, const Part& part = {}) {
    const std::string error = expect_equal(file, part).error;
    if (error.empty()) {
      expect_ours(file, part);
      return true;
    }
    EXPECT_TRUE(error.find("Fractional sampling not implemented") != std::string::npos ||
                error.find("Unsupported color conversion") != std::string::npos)
        << error;
    return false;
  }
  /// Expects equal outcomes by libjpeg-turbo, for this reason.
  void expect_left(const Bytes& file, JpegRoute why) {
    const JpegCounts before = jpeg_counts();
    expect_equal(file);
    const JpegCounts after = jpeg_counts();
    const auto i = static_cast<std::size_t>(why);
    EXPECT_EQ(after[i] - before[i], 1u) << name_of(why);
    EXPECT_EQ(after[0], before[0]);
  }

 private:
  DecodeScratch ours_, theirs_;
};

/// Settings of libjpeg's encoder.
struct Coding {
  std::vector<std::pair<int, int>> factors{{2, 2}, {1, 1}, {1, 1}};
  int quality = 90;
  bool optimised = false;
  unsigned restart_interval = 0;
  bool noise = true;
};

/// Returns the file, or nothing if libjpeg does not write such files.
Bytes encoded(Size size, const Coding& coding) {
  struct Encoder {
    jpeg_compress_struct codec{};
    jpeg_error_mgr errors{};
    std::jmp_buf escape;
    unsigned char* out = nullptr;
    unsigned long size = 0;
  } encoder;
  jpeg_compress_struct& codec = encoder.codec;
  codec.err = jpeg_std_error(&encoder.errors);
  codec.client_data = &encoder;
  encoder.errors.error_exit = [](j_common_ptr failed) {
    std::longjmp(static_cast<Encoder*>(failed->client_data)->escape, 1);
  };
  encoder.errors.emit_message = [](j_common_ptr, int) {};
  const Bytes rgb = coding.noise ? test::noise(size) : test::ramp(size);
  if (setjmp(encoder.escape) != 0) {
    jpeg_destroy_compress(&codec);
    std::free(encoder.out);
    return {};
  }
  jpeg_create_compress(&codec);
  jpeg_mem_dest(&codec, &encoder.out, &encoder.size);
  codec.image_width = static_cast<JDIMENSION>(size.width);
  codec.image_height = static_cast<JDIMENSION>(size.height);
  const auto parts = coding.factors.size();
  codec.input_components = static_cast<int>(parts);
  codec.in_color_space = parts == 1 ? JCS_GRAYSCALE : parts == 3 ? JCS_RGB : JCS_UNKNOWN;
  jpeg_set_defaults(&codec);
  jpeg_set_quality(&codec, coding.quality, FALSE);
  for (std::size_t i = 0; i < parts; ++i) {
    codec.comp_info[i].h_samp_factor = coding.factors[i].first;
    codec.comp_info[i].v_samp_factor = coding.factors[i].second;
  }
  codec.optimize_coding = coding.optimised ? TRUE : FALSE;
  codec.restart_interval = coding.restart_interval;
  jpeg_start_compress(&codec, TRUE);
  JSAMPLE row[4096];
  while (codec.next_scanline < codec.image_height) {
    for (std::size_t i = 0; i < codec.image_width * parts; ++i)
      row[i] = rgb[(codec.next_scanline * codec.image_width * 3 + i) % rgb.size()];
    JSAMPROW rows = row;
    jpeg_write_scanlines(&codec, &rows, 1);
  }
  jpeg_finish_compress(&codec);
  Bytes file(encoder.out, encoder.out + encoder.size);
  jpeg_destroy_compress(&codec);
  std::free(encoder.out);
  return file;
}

/// Draws a part, at a scale in one case of three.
Part random_part(Size size, Draw& draw) {
  Part part;
  if (draw.chance(.3)) part.scale = static_cast<int>(draw.integer(4));
  part.channels = draw.chance(.3) ? 1 : 3;
  const auto span = [&](int side, std::int32_t& begin, std::int32_t& end) {
    side = (side + (1 << part.scale) - 1) >> part.scale;
    begin = static_cast<int>(draw.integer(static_cast<std::uint32_t>(side)));
    end = begin + 1 + static_cast<int>(draw.integer(static_cast<std::uint32_t>(side - begin)));
    if (draw.chance(.3)) begin = 0;
    if (draw.chance(.3)) end = side;
  };
  span(size.width, part.rect.x0, part.rect.x1);
  span(size.height, part.rect.y0, part.rect.y1);
  return part;
}

TEST(JpegEntropy, IsAvailable) { EXPECT_STREQ(why_libjpeg(), ""); }

TEST(JpegEntropy, EverySampling) {
  Pair pair;
  int files = 0;
  std::uint32_t number = 0;
  for (int h = 1; h <= 4; ++h)
    for (int v = 1; v <= 4; ++v)
      for (const auto& rest : {std::vector<std::pair<int, int>>{},
                               {{1, 1}},
                               {{1, 1}, {1, 1}},
                               {{2, 1}, {1, 2}},
                               {{1, 2}, {2, 1}}}) {
        std::vector<std::pair<int, int>> factors{{h, v}};
        factors.insert(factors.end(), rest.begin(), rest.end());
        for (const Size size : {Size{1, 1}, Size{67, 61}}) {
          const Bytes file = encoded(size, {.factors = factors});
          if (file.empty()) continue;  // more blocks than an MCU may have
          SCOPED_TRACE(testing::Message() << h << 'x' << v << " beside " << rest.size());
          Draw draw = draws(number++);
          if (!pair.expect_ours_or_refused(file)) continue;
          for (int i = 0; i < 4; ++i) pair.expect_ours_or_refused(file, random_part(size, draw));
          ++files;
        }
      }
  EXPECT_GE(files, 80);
}

TEST(JpegEntropy, EveryQualityAndTable) {
  Pair pair;
  for (const int quality : {1, 5, 10, 20, 35, 50, 65, 75, 85, 90, 95, 98, 100})
    for (const bool optimised : {false, true})
      for (const bool noise : {false, true}) {
        SCOPED_TRACE(quality);
        pair.expect_ours(
            encoded({90, 70}, {.quality = quality, .optimised = optimised, .noise = noise}));
      }
}

TEST(JpegEntropy, EveryRestartInterval) {
  Pair pair;
  std::uint32_t number = 100;
  for (const unsigned interval : {1u, 2u, 3u, 5u, 6u, 7u, 11u, 35u, 36u, 40u, 65535u}) {
    SCOPED_TRACE(interval);
    const Size size{90, 93};  // 6 by 6 MCUs
    const Bytes file = encoded(size, {.restart_interval = interval});
    pair.expect_ours(file);
    Draw draw = draws(number++);
    for (int i = 0; i < 4; ++i) pair.expect_ours(file, random_part(size, draw));
  }
}

/// Codes of 16 bits, values of 15 bits, runs to the block's last coefficient.
TEST(JpegEntropy, ScansThatNoEncoderWrites) {
  Pair pair;
  DecodeScratch scratch;
  int decoded = 0;
  for (std::uint32_t i = 0; i < 250; ++i) {
    SCOPED_TRACE(i);
    Draw draw = draws(1000 + i);
    const test::WrittenScan scan = test::random_scan(draw);
    const Bytes file = test::file_of(scan);
    if (!pair.expect_ours_or_refused(file)) continue;
    ++decoded;
    const Size size = scratch.open(file, kMaxTestPixels).size;
    for (int k = 0; k < 3; ++k) pair.expect_ours_or_refused(file, random_part(size, draw));
  }
  EXPECT_GT(decoded, 120);
}

TEST(JpegEntropy, LeavesTheRestToLibjpeg) {
  Pair pair;
  const Size size{53, 37};
  const Bytes rgb = test::noise(size);
  const auto file = [&](const test::JpegForm& form) { return test::jpeg(size, form, rgb); };
  pair.expect_left(file({.progressive = true}), JpegRoute::scans);
  pair.expect_left(file({.arithmetic = true}), JpegRoute::arithmetic);
  pair.expect_left(file({.stored = JCS_CMYK}), JpegRoute::inks);
  pair.expect_left(file({.stored = JCS_YCCK}), JpegRoute::inks);
  pair.expect_left(test::cut(file({}), file({}).size() - 20), JpegRoute::irregular);
}

/// libjpeg reports the first that it comes to.
TEST(JpegEntropy, OfTwoWrongHuffmanTablesTheSameIsNamed) {
  Pair pair;
  const auto at = [](const Bytes& file, std::uint8_t marker) {
    std::size_t place = 2;  // behind the start of the image
    while (file[place + 1] != marker) place += 2u + 256u * file[place + 2] + file[place + 3];
    return place;
  };
  Bytes bad = encoded({33, 20}, {});
  constexpr std::uint8_t kTables = 0xc4, kScan = 0xda;
  std::uint8_t* const counts = bad.data() + at(bad, kTables) + 5;  // of the first component's codes
  counts[0] += 3;  // of one bit, of which there can be two
  counts[2] -= 3;
  EXPECT_NE(pair.expect_equal(bad).error.find("Bogus Huffman table"), std::string::npos);
  bad[at(bad, kScan) + 8] = 0x33;  // tables of the second component, which the file lacks
  EXPECT_NE(pair.expect_equal(bad).error.find("Bogus Huffman table"), std::string::npos);
}

/// Bytes behind the image, and padding before its end, as cameras write them.
TEST(JpegEntropy, BytesBehindTheImage) {
  Pair pair;
  const Bytes good = encoded({53, 37}, {});
  Bytes longer = good;
  longer.insert(longer.end(), 20'000, 7);  // libjpeg takes its faster path up to the end
  pair.expect_ours(longer);
  for (const std::size_t bytes : {1, 2, 9, 300, 40'000}) {
    Bytes padded = good;
    padded.insert(padded.end() - 2, bytes, 0);
    pair.expect_ours(padded);
  }
  Bytes fill = good;
  fill.insert(fill.end() - 2, 5, 0xff);
  pair.expect_ours(fill);
  // Segments between the data and the end, alone and behind bytes that belong nowhere.
  const Bytes comment{0xff, 0xfe, 0, 4, 'h', 'i'};
  Bytes commented = good;
  commented.insert(commented.end() - 2, comment.begin(), comment.end());
  pair.expect_ours(commented);
  Bytes between = commented;
  between.insert(between.end() - 8, 3, 0);  // libjpeg swallows these with the last bits
  pair.expect_left(between, JpegRoute::irregular);
  between.insert(between.end() - 8, 300, 0);
  EXPECT_NE(pair.expect_equal(between).error, "");
  Bytes twice = good;
  twice.insert(twice.end() - 2, {0xff, 0xda, 0, 4, 'h', 'i'});
  EXPECT_NE(pair.expect_equal(twice).error, "");
}

std::vector<Bytes> small_files() {
  std::vector<Bytes> files{
      encoded({33, 20}, {}), encoded({20, 33}, {.optimised = true, .restart_interval = 2}),
      encoded({21, 22}, {.factors = {{1, 1}}, .quality = 60, .noise = false}),
      encoded({24, 17},
              {.factors = {{1, 1}, {1, 1}, {1, 1}}, .quality = 40, .restart_interval = 1})};
  Draw draw = draws(5000);
  files.push_back(test::file_of(test::random_scan(draw)));
  return files;
}

TEST(JpegEntropy, EveryTruncationFailsAlike) {
  Pair pair;
  for (const Bytes& file : small_files())
    for (std::size_t size = 3; size < file.size(); ++size) {
      SCOPED_TRACE(size);
      const Bytes part = test::cut(file, size);
      EXPECT_NE(pair.expect_equal(part).error, "");
      // The upper rows may be there.
      if (size % 3 == 0) pair.expect_equal(part, {{0, 0, 16, 5}});
      ASSERT_FALSE(HasFailure());
    }
}

/// MILLRACE_MUTATIONS sets their number.
TEST(JpegEntropy, MutationsEndAlike) {
  const char* number = std::getenv("MILLRACE_MUTATIONS");
  const auto count = number != nullptr ? std::strtoul(number, nullptr, 10) : 6000;
  Pair pair;
  int decoded = 0, failed = 0;
  const JpegCounts before = jpeg_counts();
  const std::vector<Bytes> files = small_files();
  for (std::uint32_t i = 0; i < count; ++i) {
    SCOPED_TRACE(i);
    Draw draw = draws(20'000 + i);
    Bytes bad = files[i % files.size()];
    const auto any = [&] { return draw.integer(static_cast<std::uint32_t>(bad.size())); };
    for (int changes = 1 + static_cast<int>(draw.integer(3)); changes > 0; --changes) {
      const std::uint32_t at = any();
      switch (draw.integer(5)) {
        case 0:
          bad[at] ^= static_cast<std::uint8_t>(1U << draw.integer(8));
          break;
        case 1:
          bad[at] = static_cast<std::uint8_t>(draw.bits());
          break;
        case 2:
          bad[at] = 0xff;
          if (at + 1 < bad.size()) bad[at + 1] = static_cast<std::uint8_t>(0xd0 + draw.integer(16));
          break;
        case 3:
          bad.erase(bad.begin() + at);
          break;
        default:
          bad.insert(bad.begin() + at, static_cast<std::uint8_t>(draw.bits()));
      }
    }
    const bool is_whole = draw.chance(.6);
    const Outcome both = pair.expect_equal(bad, is_whole ? Part{} : Part{{1, 1, 9, 9}, 3, 0});
    ++(both.error.empty() ? decoded : failed);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(decoded, 500);
  EXPECT_GT(failed, 500);
  RecordProperty("decoded", decoded);
  RecordProperty("decoded_by_millrace", std::to_string(jpeg_counts()[0] - before[0]));
}

/// An image that is left to libjpeg-turbo halfway affects neither itself nor the next one.
TEST(JpegEntropy, GoesOnAfterDamage) {
  Pair pair;
  const Bytes good = encoded({200, 160}, {.restart_interval = 13});
  Bytes bad = good;
  bad[bad.size() / 2] = 0xff;
  bad[bad.size() / 2 + 1] = 0xd9;
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(pair.expect_equal(bad).error, "");
    pair.expect_ours(bad, {{16, 0, 60, 30}});
    pair.expect_ours(good);
    pair.expect_ours(good, {{30, 90, 100, 120}});
  }
}

TEST(JpegEntropy, TheLoadersOptionReachesTheDecoder) {
  const Size size{53, 37};
  const test::TempFolder folder;
  for (int i = 0; i < 4; ++i)
    folder.write("a/" + std::to_string(i) + ".jpg", encoded(size, {.quality = 60 + i * 10}));
  const std::shared_ptr<const Reader> reader = open_reader({"folder", folder.path(), "train", 0});
  const auto plan =
      compile_plan({}, Source{size, 3}, OutputOptions{DType::u8, Layout::hwc, {0}, {1}});
  std::vector<Bytes> batches;
  for (const bool only : {false, true}) {
    LoaderOptions options;
    options.batch = 4;
    options.workers = 1;
    options.only_libjpeg = only;
    const JpegCounts before = jpeg_counts();
    Loader loader(reader, plan, options);
    const Batch batch = loader.next();
    ASSERT_TRUE(batch);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(batch.data());
    batches.emplace_back(bytes, bytes + batch.bytes());
    const JpegCounts after = jpeg_counts();
    EXPECT_EQ(after[0] - before[0], only ? 0u : 4u);
    EXPECT_EQ(after[1] - before[1], only ? 4u : 0u);
  }
  EXPECT_TRUE(batches[0] == batches[1]);
}

TEST(JpegEntropy, RealImagesAreDecodedAlike) {
  const char* folder = std::getenv("MILLRACE_DATA");
  if (folder == nullptr || !test::fs::is_directory(test::fs::path(folder) / "imagenet"))
    GTEST_SKIP() << "MILLRACE_DATA names no folder with imagenet/ in it: real images are not tried";
  Pair pair;
  Draw draw = draws(9000);
  DecodeScratch scratch;
  const JpegCounts before = jpeg_counts();
  int images = 0;
  for (const auto& entry :
       test::fs::recursive_directory_iterator(test::fs::path(folder) / "imagenet")) {
    if (!entry.is_regular_file()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const Bytes file = test::read_bytes(entry.path());
    const Size size = scratch.open(file, kMaxTestPixels).stored;
    pair.expect_equal(file);
    for (int i = 0; i < 3; ++i) pair.expect_equal(file, random_part(size, draw));
    ++images;
  }
  EXPECT_GT(images, 0);
  const JpegCounts after = jpeg_counts();
  EXPECT_GE(static_cast<double>(after[0] - before[0]), .99 * 4 * images);
  std::printf("%d images compared; %s\n", images, jpeg_summary(after).c_str());
}

}  // namespace
}  // namespace millrace::pipeline
