// Tests jpeg_compression: its draws, images that compress badly, threads, and that calls take no
// memory from the heap, libjpeg's included. Golden values are in pixel_golden_test.cpp.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/augment/one_unit.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MILLRACE_COUNTS_MALLOC 1
namespace {
std::atomic<std::uint64_t> g_mallocs{0};
}
extern "C" void* __libc_malloc(std::size_t size);
// Takes the place of the C library's in this process, also for libjpeg.
extern "C" void* malloc(std::size_t size) noexcept {
  g_mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
#endif

namespace millrace::augment {
namespace {

TEST(JpegCompression, CallsTakeNothingFromTheHeap) {
#if defined(MILLRACE_COUNTS_MALLOC)
  for (const int channels : {1, 3})
    for (const Size size : {Size{1, 1}, Size{97, 55}, Size{224, 224}, Size{1500, 9}}) {
      OneUnit unit("jpeg_compression{p=1,quality=[1,100]}");
      Picture picture = noise_picture(size, channels, 3);
      Picture out = picture;
      unit.prepare(picture);
      unit.silence();
      // A new thread makes codecs of its own: one allocation here, the others in libjpeg.
      std::uint64_t first_call = 0;
      std::thread([&] {
        const std::uint64_t before = g_mallocs.load();
        unit.call(picture, out, 0);
        first_call = g_mallocs.load() - before;
      }).join();
      EXPECT_GT(first_call, 1u) << "libjpeg's allocations are not counted";
      unit.call(picture, out, 0);
      const std::uint64_t before = g_mallocs.load();
      for (std::uint64_t sample = 0; sample < 20; ++sample) unit.call(picture, out, sample);
      EXPECT_EQ(g_mallocs.load(), before)
          << size.width << "x" << size.height << ", " << channels << " channels";
    }
#else
  GTEST_SKIP() << "a sanitizer owns malloc, or the C library is not glibc";
#endif
}

TEST(JpegCompression, QualityIsUniform) {
  OneUnit unit("jpeg_compression{p=1,quality=[40,44]}");
  Picture picture = noise_picture({8, 8}, 1, 1);
  std::map<int, int> seen;
  constexpr int kCalls = 5000;
  for (std::uint64_t sample = 0; sample < kCalls; ++sample) {
    unit.apply(picture, sample);
    ++seen[static_cast<int>(unit.drawn("quality"))];
  }
  ASSERT_EQ(seen.size(), 5u);
  for (const auto& [quality, count] : seen) EXPECT_NEAR(count, kCalls / 5, 130) << quality;
  EXPECT_EQ(seen.begin()->first, 40);
}

TEST(JpegCompression, LowerQualityLosesMore) {
  const Picture before = golden_picture("smooth", 3, {64, 48});
  double last = 0;
  for (const int quality : {100, 90, 50, 10, 1}) {
    Picture picture = before;
    OneUnit(fmt::format("jpeg_compression{{p=1,quality=[{}]}}", quality)).apply(picture);
    double squares = 0;
    for (std::size_t i = 0; i < before.levels.size(); ++i) {
      const double by = picture.levels[i] - before.levels[i];
      squares += by * by;
    }
    EXPECT_GT(squares, last) << quality;
    last = squares;
  }
}

/// Compresses the images whose coefficients take the most bits at full quality.
TEST(JpegCompression, ImagesThatCompressBadlyFit) {
  for (const int channels : {1, 3})
    for (const Size size : {Size{1, 1}, Size{16, 16}, Size{17, 33}, Size{320, 200}}) {
      for (const bool two_levels : {false, true}) {
        Picture picture = noise_picture(size, channels, 7);
        if (two_levels)
          for (auto& level : picture.levels) level = level < 128 ? 0 : 255;
        Picture gray = picture;  // equal channels put all energy into luminance
        for (std::size_t i = 0; i < gray.levels.size(); ++i)
          gray.levels[i] = gray.levels[i - i % static_cast<std::size_t>(channels)];
        OneUnit unit("jpeg_compression{p=1,quality=[100]}");
        EXPECT_NO_THROW(unit.apply(picture));
        EXPECT_NO_THROW(unit.apply(gray));
      }
    }
}

TEST(JpegCompression, ThreadsGiveTheSameBytes) {
  const auto compressed = [](std::uint64_t sample) {
    OneUnit unit("jpeg_compression{p=1,quality=[5,95]}");
    Picture picture = noise_picture({75, 43}, 3, sample);
    unit.apply(picture, sample);
    return picture.levels;
  };
  std::vector<std::vector<std::uint8_t>> expected;
  for (std::uint64_t sample = 0; sample < 16; ++sample) expected.push_back(compressed(sample));
  std::atomic<int> differ{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 16; ++i)
        differ += compressed((i * 5 + t) % 16) != expected[(i * 5 + t) % 16];
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(differ.load(), 0);
}

TEST(JpegCompression, TooLargeAnImageIsAnErrorOfItsData) {
  Picture picture({65501, 1}, 1);
  OneUnit unit("jpeg_compression{p=1}");
  EXPECT_THROW(unit.apply(picture), DataError);
  Picture small = noise_picture({20, 20}, 3, 1);
  EXPECT_NO_THROW(unit.apply(small)) << "the codecs serve the next image";
}

}  // namespace
}  // namespace millrace::augment
