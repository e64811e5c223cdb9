// Tests decoders: pixels, limits, and damage, which must be an error and never gray.
#include "pipeline/decoders/decoder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>

#include "millrace/reader.h"
#include "tests/data/jpeg_forms.h"
#include "tools/data/data.h"

// Counts this project's own allocations, by operator new and (Buffer) by aligned_alloc; libjpeg's
// malloc is not counted. Sanitizers bring functions of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MILLRACE_COUNTS_ALLOCATIONS 1
namespace {
std::atomic<std::uint64_t> allocations{0};
}
// Not inlined, because GCC would take the pair for a mismatched one.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++allocations;
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}
#endif

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::cut;
using test::expect_data_error;

constexpr std::uint64_t kUnlimited = 1'000'000'000;

using test::JpegForm;
using test::ramp;

Bytes jpeg(Size size, const JpegForm& form) { return test::jpeg(size, form, ramp(size)); }

Bytes decoded(const Bytes& file, int channels, std::uint64_t max_pixels = kUnlimited) {
  DecodeScratch scratch;
  const ImageView image = scratch.decode(file, channels, max_pixels);
  EXPECT_EQ(image.channels, channels);
  return test::pixels_of(image);
}

void expect_near(const Bytes& found, const Bytes& expected, int levels) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], levels) << "at byte " << i;
}

constexpr Size kSize{53, 37};

// ---- JPEG

TEST(Jpeg, ColourBaselineAndProgressive) {
  expect_near(decoded(tools::encode_jpeg(ramp(kSize), kSize, 95), 3), ramp(kSize), 12);
  expect_near(decoded(jpeg(kSize, {JCS_YCbCr, true, 0}), 3), ramp(kSize), 12);
  expect_near(decoded(jpeg(kSize, {JCS_YCbCr, false, 1}), 3), ramp(kSize), 12);
  expect_near(decoded(jpeg(kSize, {JCS_RGB, false, 0}), 3), ramp(kSize), 12);
}

TEST(Jpeg, GrayAndColourBecomeEachOther) {
  const Bytes rgb = ramp(kSize), file = jpeg(kSize, {JCS_GRAYSCALE, false, 0});
  Bytes first, gray_as_rgb, luma;
  for (std::size_t i = 0; i < rgb.size(); i += 3) {
    first.push_back(rgb[i]);
    gray_as_rgb.insert(gray_as_rgb.end(), 3, rgb[i]);
    luma.push_back(
        static_cast<std::uint8_t>(.299 * rgb[i] + .587 * rgb[i + 1] + .114 * rgb[i + 2]));
  }
  expect_near(decoded(file, 1), first, 3);
  expect_near(decoded(file, 3), gray_as_rgb, 3);
  expect_near(decoded(tools::encode_jpeg(rgb, kSize, 95), 1), luma, 4);
}

TEST(Jpeg, EveryCutFails) {
  for (const JpegForm& form :
       {JpegForm{}, JpegForm{JCS_YCbCr, true, 0}, JpegForm{JCS_YCbCr, false, 1}}) {
    const Bytes file = jpeg(kSize, form);
    ASSERT_EQ(decoded(file, 3).size(), 53u * 37 * 3);
    for (std::size_t size = 3; size < file.size(); size += size < file.size() - 40 ? 11 : 1)
      EXPECT_THROW(decoded(cut(file, size), 3), DataError) << size << " of " << file.size();
  }
}

TEST(Jpeg, CutInHalfSaysSo) {
  Bytes file = tools::encode_jpeg(ramp(kSize), kSize, 95);
  file.resize(file.size() - 200);
  expect_data_error({"jpeg: Premature end of JPEG file"}, [&] { decoded(file, 3); });
  file.insert(file.end(), {0xff, 0xd9});  // an end marker does not make it whole
  expect_data_error({"jpeg: Corrupt JPEG data"}, [&] { decoded(file, 3); });
}

TEST(Jpeg, PaddingBeforeTheEndMarkerIsHarmless) {
  Bytes file = tools::encode_jpeg(ramp(kSize), kSize, 95);
  file.insert(file.end() - 2, 10, 0);
  expect_near(decoded(file, 3), ramp(kSize), 12);
}

const nlohmann::json& golden() {
  static const nlohmann::json all =
      nlohmann::json::parse(std::ifstream(MILLRACE_GOLDEN "/decode.json"));
  return all;
}

Bytes from_hex(const nlohmann::json& text) {
  const auto digits = text.get<std::string>();
  Bytes bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(Jpeg, CmykIsPillows) {
  for (const auto& item : golden()["cmyk"]) {
    EXPECT_EQ(decoded(from_hex(item["file"]), 3), from_hex(item["rgb"])) << item["name"];
    EXPECT_EQ(decoded(from_hex(item["file"]), 1), from_hex(item["gray"])) << item["name"];
  }
}

TEST(Jpeg, OrientationIsPillows) {
  for (const auto& item : golden()["orientation"]) {
    DecodeScratch scratch;
    const Bytes file = from_hex(item["file"]), expected = from_hex(item["rgb"]);
    const ImageView image = scratch.decode(file, 3, kUnlimited);
    ASSERT_EQ(image.size(), (Size{item["width"].get<int>(), item["height"].get<int>()}));
    EXPECT_EQ(test::pixels_of(image), expected);
  }
}

TEST(Jpeg, ScratchGoesOnAfterAnError) {
  DecodeScratch scratch;
  const Bytes good = jpeg(kSize, {}), bad(good.begin(), good.end() - 300);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(scratch.decode(bad, 3, kUnlimited), DataError);
    EXPECT_EQ(scratch.decode(good, 3, kUnlimited).size(), kSize);
  }
}

TEST(Decode, MaxPixelsIsCheckedBeforeAnythingIsAllocated) {
  Bytes file = jpeg(kSize, {});
  for (std::size_t at = 2; at + 9 < file.size(); ++at)
    if (file[at] == 0xff && file[at + 1] == 0xc0)  // the frame header: claim 60000x60000
      file[at + 5] = file[at + 7] = 0xea, file[at + 6] = file[at + 8] = 0x60;
  expect_data_error({"jpeg: 60000x60000 pixels in 1103 bytes: it was cut short"},
                    [&] { decoded(file, 3, kUnlimited); });
  file.resize(12'000'000);
  expect_data_error({"jpeg: 60000x60000 is 3600000000 pixels", "data.max_pixels=178956970"},
                    [&] { decoded(file, 3, 178'956'970); });
  expect_data_error({"data.max_pixels=1960"}, [] { decoded(jpeg(kSize, {}), 3, 53 * 37 - 1); });
  EXPECT_EQ(decoded(jpeg(kSize, {}), 3, 53 * 37).size(), 53u * 37 * 3);
}

#if defined(MILLRACE_COUNTS_ALLOCATIONS)
TEST(Decode, SteadyStateAllocatesNothingOfOurs) {
  const test::TempFolder folder;
  const JpegForm forms[] = {{}, {JCS_YCbCr, true}, {JCS_CMYK}, {.app1 = test::exif(6)}};
  for (std::size_t i = 0; i < std::size(forms); ++i)
    folder.write("a/" + std::to_string(i) + ".jpg", jpeg(kSize, forms[i]));
  const auto reader = open_reader({"folder", folder.path(), "train", 0});
  Buffer bytes;
  DecodeScratch scratch;
  const auto all = [&] {
    for (std::uint64_t i = 0; i < std::size(forms); ++i) {
      scratch.decode(reader->read(i, bytes).bytes, 3, kUnlimited);
      scratch.open(reader->read(i, bytes).bytes, kUnlimited);
      scratch.decode(3, {9, 3, 20, 30});
      scratch.decode(1, {3, 4, 5, 6}, 2);
    }
  };
  const std::uint64_t none = allocations;
  all();
  const std::uint64_t first = allocations;
  EXPECT_GT(first, none);
  all();
  EXPECT_EQ(allocations, first);
}
#endif

}  // namespace
}  // namespace millrace::pipeline
