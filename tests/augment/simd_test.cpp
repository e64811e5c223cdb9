// Tests that every SIMD level gives the bytes of the scalar one (determinism contract), for random
// passes into every element type and layout, and writes nothing else.
#include "base/simd.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "millrace/error.h"
#include "tests/augment/forced_level.h"
#include "tests/augment/random_pass.h"

namespace millrace::augment {
namespace {

using test::ForcedLevel;

constexpr std::size_t kGuard = 96;
constexpr std::byte kUntouched{0xA5};

struct Output {
  DType dtype;
  Layout layout;
  bool tables;
};

std::vector<std::byte> carried_out(const RandomPass& random, const Output& output, base::Simd level,
                                   ResampleScratch& scratch) {
  const ForcedLevel forced(level);
  const Pass& pass = random.pass;
  const int channels = pass.source.channels;
  const bool one = pass.output.width % 2 == 0 || channels == 1;
  const Store store(output.dtype, output.layout, channels,
                    one ? std::vector{0.45} : std::vector{0.485, 0.456, 0.406},
                    one ? std::vector{0.25} : std::vector{0.229, 0.224, 0.225});
  LevelTable tables[3];
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t i = 0; i < 256; ++i)
      tables[c][i] = static_cast<std::uint8_t>((i * (2 * c + 3) + c * 50) ^ 0x55);
  const std::size_t bytes = static_cast<std::size_t>(pass.output.width * pass.output.height) *
                            static_cast<std::size_t>(channels) * size_of(output.dtype);
  std::vector<std::byte> out(bytes + 2 * kGuard, kUntouched);
  resample(pass, store, out.data() + kGuard, scratch, output.tables ? tables : nullptr);
  return out;
}

struct FilterCase {
  Filter filter;
  const char* name;

  friend void PrintTo(const FilterCase& one, std::ostream* out) { *out << one.name; }
};

class SimdLevels : public testing::TestWithParam<FilterCase> {};

TEST_P(SimdLevels, GiveTheSameBytes) {
  ResampleScratch scratch;
  const Output outputs[] = {{DType::u8, Layout::chw, false},   {DType::u8, Layout::hwc, false},
                            {DType::u8, Layout::chw, true},    {DType::u8, Layout::hwc, true},
                            {DType::f32, Layout::chw, false},  {DType::f32, Layout::hwc, false},
                            {DType::f32, Layout::chw, true},   {DType::f32, Layout::hwc, true},
                            {DType::f16, Layout::chw, false},  {DType::f16, Layout::hwc, true},
                            {DType::bf16, Layout::hwc, false}, {DType::bf16, Layout::chw, true}};
  for (std::uint64_t number = 0; number < 4000; ++number) {
    const RandomPass random = random_pass(number, GetParam().filter);
    for (const std::size_t i : {number % 2, 2 + number % 10}) {
      const Output& output = outputs[i];
      const auto expected = carried_out(random, output, base::Simd::scalar, scratch);
      for (std::size_t g = 0; g < kGuard; ++g) {
        ASSERT_EQ(expected[g], kUntouched);
        ASSERT_EQ(expected[expected.size() - 1 - g], kUntouched);
      }
      for (const base::Simd level : {base::Simd::avx2, base::Simd::avx512}) {
        if (level > base::simd_supported()) continue;
        const auto got = carried_out(random, output, level, scratch);
        if (got == expected) continue;
        std::size_t at = 0;
        while (got[at] == expected[at]) ++at;
        FAIL() << "pass " << number << ", " << base::name_of(level) << ", " << name_of(output.dtype)
               << (output.layout == Layout::chw ? " chw" : " hwc")
               << (output.tables ? " with tables" : "") << ", byte "
               << static_cast<long>(at) - static_cast<long>(kGuard) << " of "
               << got.size() - 2 * kGuard << ": " << std::to_integer<int>(got[at]) << " for "
               << std::to_integer<int>(expected[at]) << "; " << random.pass.output.width << "x"
               << random.pass.output.height;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Filters, SimdLevels,
                         testing::Values(FilterCase{Filter::none, "None"},
                                         FilterCase{Filter::nearest, "Nearest"},
                                         FilterCase{Filter::bilinear, "Bilinear"},
                                         FilterCase{Filter::reduce, "Reduce"}),
                         testing::PrintToStringParamName());

/// Tests samples so large that they are written past the caches, which takes aligned memory, with
/// aligned and unaligned planes and tiles.
TEST(Simd, LargeSamplesAreTheSameToo) {
  constexpr std::size_t kLine = 64;
  for (const Size size : {Size{256, 256}, Size{301, 303}}) {
    const auto elements = static_cast<std::size_t>(size.width * size.height) * 3;
    Draw draw(base::stream({5, 0, 0}, 1));
    const std::vector<std::uint8_t> pixels = random_pixels(elements, draw);
    Pass pass;
    pass.source = interleaved(pixels.data(), size, 3);
    pass.output = size;
    for (const DType dtype : {DType::f32, DType::f16}) {
      for (const Layout layout : {Layout::chw, Layout::hwc}) {
        const Store store(dtype, layout, 3, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
        const std::size_t bytes = elements * size_of(dtype) + 3 * kLine;
        ResampleScratch scratch;
        for (const std::size_t offset : {std::size_t{0}, size_of(dtype), std::size_t{32}}) {
          const auto carried_out_by = [&](base::Simd level) {
            const ForcedLevel forced(level);
            Buffer memory;
            auto* out = reinterpret_cast<std::byte*>(memory.reserve(bytes));
            std::fill_n(out, bytes, kUntouched);
            resample(pass, store, out + kLine + offset, scratch, nullptr);
            return std::vector<std::byte>(out, out + bytes);
          };
          const auto expected = carried_out_by(base::Simd::scalar);
          for (const base::Simd level : {base::Simd::avx2, base::Simd::avx512}) {
            if (level > base::simd_supported()) continue;
            EXPECT_TRUE(carried_out_by(level) == expected)
                << base::name_of(level) << ' ' << name_of(dtype) << ' ' << size.width << " +"
                << offset;
          }
        }
      }
    }
  }
}

/// Tests a plane of 20x19 under outputs wider than one vector step, from a corner of a frame whose
/// columns do not fit 16 bits, clamped as well as filled.
TEST(Simd, SmallPlanesInWideOutputsAreTheSameToo) {
  const Size small{20, 19};
  Draw draw(base::stream({6, 0, 0}, 1));
  const std::vector<std::uint8_t> pixels = random_pixels(20 * 19 * 3, draw);
  ResampleScratch scratch;
  for (const int width : {1, 7, 17, 511, 512, 513, 1301})
    for (const int corner : {0, 32760, 40000, -40000})
      for (const bool clamp : {false, true})
        for (const int channels : {1, 3}) {
          Pass pass;
          pass.source = planar(pixels.data() - corner, small, channels);
          pass.output = {width, 5};
          pass.filter = Filter::nearest;
          pass.border = clamp ? Border::clamp : Border::constant;
          pass.inner.push_back({{corner, 0, corner + small.width, small.height}, {7, 8, 9}});
          // The output's ends see 6 pixels beyond the plane's.
          pass.map = {32.0 / width, 0.7, corner - 6.3, 0.001, 3.1, 1.2, 0, 0, 1};
          const Store store(DType::u8, Layout::chw, channels, {0}, {1});
          const auto output_at = [&](base::Simd level) {
            const ForcedLevel forced(level);
            std::vector<std::byte> out(static_cast<std::size_t>(width * 5 * channels) + 2 * kGuard,
                                       kUntouched);
            resample(pass, store, out.data() + kGuard, scratch);
            return out;
          };
          const auto expected = output_at(base::Simd::scalar);
          for (const base::Simd level : test::simd_levels())
            EXPECT_TRUE(output_at(level) == expected)
                << base::name_of(level) << ' ' << width << " from " << corner
                << (clamp ? ", clamp" : "") << ", channels " << channels;
        }
}

TEST(Simd, AnUnsupportedLevelIsRefused) {
  if (base::simd_supported() == base::Simd::avx512)
    GTEST_SKIP() << "this processor can do all levels";
  EXPECT_THROW(base::set_simd_level(base::Simd::avx512), UsageError);
}

/// Ends the process: with 0 if the level is the one named, with 2 if it is rejected.
[[noreturn]] void leave_with_level(const char* variable, std::string_view name) {
  setenv("MILLRACE_SIMD", variable, 1);
  try {
    std::_Exit(base::name_of(base::simd_level()) == name ? 0 : 1);
  } catch (const UsageError& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(2);
  }
}

TEST(SimdDeathTest, TheEnvironmentDecides) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process: the level is read once
  EXPECT_EXIT(leave_with_level("scalar", "scalar"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(leave_with_level("", base::name_of(base::simd_supported())),
              testing::ExitedWithCode(0), "");
  EXPECT_EXIT(leave_with_level("mmx", ""), testing::ExitedWithCode(2),
              "MILLRACE_SIMD=mmx: this processor can do scalar");
  if (base::simd_supported() >= base::Simd::avx2) {
    EXPECT_EXIT(leave_with_level("avx2", "avx2"), testing::ExitedWithCode(0), "");
  }
}

}  // namespace
}  // namespace millrace::augment
