// Tests that kernels read only the memory that a pass holds, at every SIMD level, even for pixels
// that do not count. AddressSanitizer does not see what gathers and masked loads read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/augment/fenced_source.h"
#include "tests/augment/forced_level.h"
#include "tests/augment/random_chain.h"
#include "tests/augment/random_pass.h"
#include "tests/generated_cases.h"

namespace millrace::augment {
namespace {

using test::FaultNote;
using test::FencedMemory;
using test::FencedSource;
using test::Fencing;
using test::ForcedLevel;
using Bytes = std::vector<std::uint8_t>;

TEST(HeldMemoryDeathTest, TheFencesStand) {
  FencedMemory memory;
  const volatile std::uint8_t* front = memory.piece(100, true, 7);
  EXPECT_EQ(*front, 7);
  EXPECT_DEATH(static_cast<void>(front[-1]), "");
  const volatile std::uint8_t* back = memory.piece(100, false, 8);
  EXPECT_EQ(back[99], 8);
  EXPECT_DEATH(static_cast<void>(back[100]), "");
}

/// Runs chains on images of which a decoder would have delivered a part.
TEST(HeldMemory, ChainsReadOnlyWhatTheyAskFor) {
  constexpr int kChains = test::generated_cases(600);
  FencedMemory memory;
  FaultNote note;
  int parts = 0;
  for (std::uint64_t number = 0; number < kChains; ++number) {
    Draw draw(base::stream({12, 0, number}, base::op_id("held")));
    const auto side = [&] { return 40 + static_cast<int>(draw.integer(60)); };
    const Size size{side(), side()};
    const int channels = draw.chance(.7) ? 3 : 1;
    const Bytes pixels = random_pixels(
        static_cast<std::size_t>(size.width * size.height) * static_cast<std::size_t>(channels),
        draw);
    WholeImage whole(interleaved(pixels.data(), size, channels));
    const auto ops = test::random_chain(number, size);
    const Resample resample = draw.chance(.7) ? Resample::once : Resample::stepwise;
    test::PlannedChain chain(ops, {size, channels}, {DType::u8, Layout::hwc, {0}, {1}}, resample);
    const Bytes expected = chain.run(number, whole, base::Simd::scalar);
    const int orientation = 1 + static_cast<int>(draw.integer(8));
    bool is_part = false;
    for (const base::Simd level : test::simd_levels())
      for (const std::uint8_t poison : {0x00, 0xFF})
        for (const bool at_front : {true, false}) {
          const std::string what =
              fmt::format("chain {} on {}x{}, {} channels, {}: {}", number, size.width, size.height,
                          channels, base::name_of(level), test::to_text(ops));
          note.set(what);
          FencedSource source(whole, memory, {at_front, poison, draw.chance(.5), orientation});
          const Bytes got = chain.run(number, source, level);
          ASSERT_TRUE(got == expected)
              << what << "; what was not asked for held " << int{poison} << ", columns "
              << source.asked.x0 << " to " << source.asked.x1 << ", rows " << source.asked.y0
              << " to " << source.asked.y1 << " were asked for";
          is_part = source.asked.x1 - source.asked.x0 < size.width &&
                    source.asked.y1 - source.asked.y0 < size.height;
        }
    parts += is_part;
  }
  EXPECT_GT(parts, kChains / 3) << "most chains asked for all of the image";
}

/// With 14 bits of fraction 1.00003 becomes 1, which moves pixel 59,900 by 1.8 pixels.
TEST(HeldMemory, RegionsAllowForRoundedCoefficients) {
  FencedMemory memory;
  FaultNote note;
  const Size size{60000, 4};
  Draw draw(base::stream({14, 0, 0}, base::op_id("held")));
  const Bytes pixels = random_pixels(240000, draw);
  WholeImage whole(interleaved(pixels.data(), size, 1));
  for (const char* interpolation : {"nearest", "bilinear"}) {
    const std::string affine =
        fmt::format("affine{{scale=0.9999701,interpolation={}}}", interpolation);
    test::PlannedChain chain({affine, "crop{left=59900,width=64,height=4}"}, {size, 1},
                             {DType::u8, Layout::hwc, {0}, {1}}, {});
    const Bytes expected = chain.run(0, whole, base::Simd::scalar);
    for (const base::Simd level : test::simd_levels())
      for (const bool at_front : {true, false}) {
        const std::string what = fmt::format("{}, {}", affine, base::name_of(level));
        note.set(what);
        FencedSource source(whole, memory, {at_front, 0xFF});
        EXPECT_TRUE(chain.run(0, source, level) == expected) << what;
        EXPECT_LT(source.asked.x1 - source.asked.x0, 100) << what;
      }
  }
}

/// Returns the memory of `view`'s pixels: the first byte, and the end.
std::pair<const std::uint8_t*, const std::uint8_t*> extent(const ImageView& view, const Rect& all) {
  const std::uint8_t* low = nullptr;
  const std::uint8_t* high = nullptr;
  for (const int x : {all.x0, all.x1 - 1})
    for (const int y : {all.y0, all.y1 - 1})
      for (const int c : {0, view.channels - 1}) {
        const std::uint8_t* at = view.at(x, y, c);
        low = low == nullptr ? at : std::min(low, at);
        high = high == nullptr ? at : std::max(high, at);
      }
  return {low, high + 1};
}

/// Runs passes over views of every kind (planar, mirrored, turned) that end where memory does.
TEST(HeldMemory, PassesStayWithinTheirSource) {
  constexpr int kPasses = test::generated_cases(1000);
  FencedMemory memory;
  FaultNote note;
  ResampleScratch scratch;
  for (const Filter filter : {Filter::none, Filter::nearest, Filter::bilinear, Filter::reduce})
    for (std::uint64_t number = 0; number < kPasses; ++number) {
      RandomPass random = random_pass(number, filter);
      Pass& pass = random.pass;
      Bytes expected(static_cast<std::size_t>(pass.output.width * pass.output.height) *
                     static_cast<std::size_t>(pass.source.channels));
      {
        const ForcedLevel forced(base::Simd::scalar);
        resample(pass, expected.data(), scratch);
      }
      const auto [low, high] = extent(pass.source, random.all);
      const auto size = static_cast<std::size_t>(high - low);
      const ImageView view = pass.source;
      for (const base::Simd level : test::simd_levels()) {
        const ForcedLevel forced(level);
        for (const bool at_front : {true, false}) {
          const std::string what =
              fmt::format("pass {} of filter {}, {}, memory {}", number, static_cast<int>(filter),
                          base::name_of(level), at_front ? "begins" : "ends");
          note.set(what);
          std::uint8_t* at = memory.piece(size + kTailSlack, at_front, 0xA5);
          std::memcpy(at, low, size);
          pass.source.data = at + (view.data - low);
          Bytes got(expected.size());
          resample(pass, got.data(), scratch);
          ASSERT_TRUE(got == expected) << what;
        }
      }
      pass.source = view;
    }
}

}  // namespace
}  // namespace millrace::augment
