// Tests of chains that compute with floats (decode.depth).
#include "augment/plan/float_pass.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/augment/fenced_source.h"
#include "tests/augment/random_chain.h"
#include "tests/augment/random_pass.h"

namespace millrace::augment {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// Returns whether an op of random_chain() works on levels.
bool needs_levels(const std::string& op) {
  for (const char* name :
       {"rand_augment", "trivial_augment", "auto_augment", "invert", "autocontrast"})
    if (op.starts_with(name)) return true;
  return false;
}

std::vector<float> floats_of(const Bytes& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

/// Both ways share the folding; the 8-bit kernels are the oracle of what pixels become. Each op may
/// round a level; between nearest neighbours a position in fixed point may fall on the other side.
TEST(FloatPass, RandomChainsMakeTheLevelsOfEightBits) {
  constexpr int kChains = 1500;
  test::FencedMemory memory;
  test::FaultNote note;
  int compared = 0, odd = 0;
  for (std::uint64_t number = 0; number < kChains; ++number) {
    Draw draw(base::stream({15, 0, number}, base::op_id("floats")));
    const auto side = [&] { return 40 + static_cast<int>(draw.integer(60)); };
    const Size size{side(), side()};
    const int channels = draw.chance(.7) ? 3 : 1;
    const Bytes pixels = random_pixels(
        static_cast<std::size_t>(size.width * size.height) * static_cast<std::size_t>(channels),
        draw);
    WholeImage whole(interleaved(pixels.data(), size, channels));
    std::vector<std::string> ops = test::random_chain(number, size);
    std::erase_if(ops, needs_levels);
    if (ops.empty()) continue;
    const Resample resample = draw.chance(.7) ? Resample::once : Resample::stepwise;
    const OutputOptions levels{DType::u8, Layout::hwc, {0}, {1}};
    const OutputOptions fractions{DType::f32, Layout::hwc, {0}, {1}};
    test::PlannedChain narrow(ops, {size, channels}, levels, resample);
    test::PlannedChain wide(ops, {size, channels, Depth::f32}, fractions, resample);
    const Bytes expected = narrow.run(number, whole, base::Simd::scalar);
    const std::string what = fmt::format("chain {} on {}x{}x{}: {}", number, size.width,
                                         size.height, channels, test::to_text(ops));
    note.set(what);
    test::FencedSource source(
        whole, memory,
        {draw.chance(.5), 0xFF, draw.chance(.5), 1 + static_cast<int>(draw.integer(8))});
    const std::vector<float> got = floats_of(wide.run(number, source, base::Simd::scalar));
    ASSERT_EQ(got.size(), expected.size()) << what;
    const double most = 0.6 + 0.6 * static_cast<double>(ops.size());
    std::size_t far = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      far += std::abs(255.0 * static_cast<double>(got[i]) - expected[i]) > most;
    const bool nearest = what.find("nearest") != what.npos;
    const bool agrees = far <= (nearest ? got.size() / 50 : 0);
    if (nearest)
      odd += !agrees;
    else
      ASSERT_TRUE(agrees) << far << " values: " << what;
    ++compared;
  }
  EXPECT_GT(compared, kChains * 2 / 3);
  EXPECT_LT(odd, compared / 30) << "chains with nearest neighbours that differ in 2% of values";
}

TEST(FloatPass, LevelsBecomeFractionsOfFullScaleAndFloatsStay) {
  const std::uint16_t wide[] = {0, 1, 32768, 65535};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float own[] = {-3.5F, 1e6F, nan, 0.25F};
  Buffer memory;
  const auto value = [](const ImageView& view, int x) {
    float number;
    std::memcpy(&number, view.at(x, 0), sizeof number);
    return number;
  };
  const auto bytes = [](const auto& values) {
    return reinterpret_cast<const std::uint8_t*>(values);
  };
  ImageView view = to_floats(interleaved(bytes(wide), {4, 1}, 1, Depth::u16), {0, 0, 4, 1}, memory);
  for (int x = 0; x < 4; ++x) EXPECT_EQ(value(view, x), static_cast<float>(wide[x]) / 65535.0F);
  view = to_floats(interleaved(bytes(own), {4, 1}, 1, Depth::f32), {1, 0, 4, 1}, memory);
  EXPECT_EQ(value(view, 1), 1e6F);
  EXPECT_TRUE(std::isnan(value(view, 2)));
  EXPECT_EQ(value(view, 3), 0.25F);
}

/// A value that is no number stays where it is, and no weight of zero spreads it.
TEST(FloatPass, ValuesThatAreNoNumbersDoNotSpread) {
  std::vector<float> values(8 * 8, 0.5F);
  values[8 * 3 + 3] = std::numeric_limits<float>::quiet_NaN();
  WholeImage image(
      interleaved(reinterpret_cast<const std::uint8_t*>(values.data()), {8, 8}, 1, Depth::f32));
  for (const char* op :
       {"hflip", "affine{degrees=0,interpolation=bilinear}", "resize{size=[8,8]}"}) {
    test::PlannedChain chain({op}, {{8, 8}, 1, Depth::f32}, {DType::f32, Layout::hwc, {0}, {1}},
                             {});
    int odd = 0;
    for (const float got : floats_of(chain.run(0, image, base::Simd::scalar)))
      odd += std::isnan(got);
    EXPECT_EQ(odd, 1) << op;
  }
}

TEST(FloatPass, SevenChannelsPassThroughGeometryAndTheStore) {
  const Size size{9, 6};
  std::vector<std::uint16_t> values(9 * 6 * 7);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i * 97);
  const ImageView view =
      interleaved(reinterpret_cast<const std::uint8_t*>(values.data()), size, 7, Depth::u16);
  WholeImage image(view);
  std::vector<double> mean(7), std(7, 0.5);
  for (std::size_t c = 0; c < 7; ++c) mean[c] = 0.1 * static_cast<double>(c);
  for (const Layout layout : {Layout::hwc, Layout::chw}) {
    test::PlannedChain chain({"hflip{p=1}", "crop{left=-1,top=1,width=6,height=4,fill=51}"},
                             {size, 7, Depth::u16}, {DType::f32, layout, mean, std}, {});
    const std::vector<float> got = floats_of(chain.run(0, image, base::Simd::scalar));
    ASSERT_EQ(got.size(), 6u * 4 * 7);
    for (int y = 0; y < 4; ++y)
      for (int x = 0; x < 6; ++x)
        for (int c = 0; c < 7; ++c) {
          const int from = 9 - 1 - (x - 1);  // flipped, then cropped
          std::uint16_t level;
          std::memcpy(&level, view.at(std::min(from, 8), y + 1, c), sizeof level);
          const float plain = x == 0 ? 51 / 255.0F : static_cast<float>(level) / 65535.0F;
          const float expected =
              (plain - static_cast<float>(mean[static_cast<std::size_t>(c)])) / 0.5F;
          const int at = layout == Layout::hwc ? (y * 6 + x) * 7 + c : (c * 4 + y) * 6 + x;
          ASSERT_EQ(got[static_cast<std::size_t>(at)], expected) << x << ' ' << y << ' ' << c;
        }
  }
}

TEST(FloatPass, OpsThatNeedLevelsAndOtherChannelsAreRefusedInOneLine) {
  const auto refused = [](const std::string& op, const Source& source, const std::string& what) {
    try {
      test::PlannedChain chain({op}, source, {DType::f32, Layout::hwc, {0}, {1}}, {});
      ADD_FAILURE() << op << " was accepted";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  refused("brightness", {{8, 8}, 3, Depth::u16}, "works on 8 bits, and decode.depth=16");
  refused("gaussian_blur", {{8, 8}, 3, Depth::f32}, "works on 8 bits, and decode.depth=float");
  refused("rand_augment", {{8, 8}, 3, Depth::f32}, "works on 8 bits");
  refused("hflip", {{8, 8}, 4}, "images of 4 channels");
  refused("hflip", {{8, 8}, 513, Depth::f32}, "images of 513 channels");
}

TEST(FloatPass, NoiseOnFloatsHasItsMeanAndDeviation) {
  std::vector<float> values(200 * 200, 0.5F);
  WholeImage image(
      interleaved(reinterpret_cast<const std::uint8_t*>(values.data()), {200, 200}, 1, Depth::f32));
  test::PlannedChain chain({"gaussian_noise{mean=0.1,sigma=0.05,clip=false}"},
                           {{200, 200}, 1, Depth::f32}, {DType::f32, Layout::hwc, {0}, {1}}, {});
  double sum = 0, squares = 0;
  const std::vector<float> got = floats_of(chain.run(0, image, base::Simd::scalar));
  for (const float value : got) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double count = static_cast<double>(got.size()), mean = sum / count;
  const double deviation = std::sqrt(squares / count - mean * mean);
  // Five standard errors of 40,000 deviates.
  EXPECT_NEAR(mean, 0.6, 5 * 0.05 / std::sqrt(count));
  EXPECT_NEAR(deviation, 0.05, 5 * 0.05 / std::sqrt(2 * count));
}

}  // namespace
}  // namespace millrace::augment
