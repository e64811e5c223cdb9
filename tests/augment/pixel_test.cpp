// Tests properties of every pixel op and filter: equal bytes at all SIMD levels, no write outside
// the image, no heap allocation, any size, gray images.
#include <gtest/gtest.h>

#include "augment/ops/noise.h"
#include "augment/ops/pixels.h"
#include "base/simd.h"
#include "tests/augment/one_unit.h"
#include "tests/pipeline/allocations.h"

namespace millrace::augment {
namespace {

const std::vector<std::string> kUnits{
    "invert{p=1}",
    "posterize{p=1}",
    "solarize{p=1}",
    "brightness{factor=1.3}",
    "autocontrast{p=1}",
    "equalize{p=1}",
    "contrast{factor=1.3}",
    "saturation{factor=1.6}",
    "hue{turn=0.3}",
    "grayscale{p=1}",
    "color_jitter{brightness=0.5,contrast=0.5,saturation=0.5,hue=0.2}",
    "sharpness{p=1}",
    "gaussian_blur{kernel_size=[7,3]}",
    "jpeg_compression{p=1}",
    "gaussian_noise{sigma=0.2}",
    "gaussian_noise{sigma=0.2,clip=false}",
    "random_erasing{p=1,value=[9,8,7]}",
    "random_erasing{p=1,mode=random}",
    "elastic{sigma=2}",
    "elastic{sigma=0,interpolation=nearest,fill=[3,2,1]}",
};

class EverySimdLevel {
 public:
  ~EverySimdLevel() { base::set_simd_level(before_); }
  template <class Body>
  void run(const Body& body) {
    for (const base::Simd level : {base::Simd::scalar, base::Simd::avx2, base::Simd::avx512}) {
      if (level > base::simd_supported()) continue;
      base::set_simd_level(level);
      body(level);
    }
  }

 private:
  base::Simd before_ = base::simd_level();
};

TEST(PixelOps, AllSimdLevelsGiveTheSameBytes) {
  for (const std::string& text : kUnits)
    for (const int channels : {1, 3})
      for (const Size size : {Size{83, 41}, Size{400, 7}, Size{1200, 2}}) {
        std::vector<std::uint8_t> expected;
        EverySimdLevel().run([&](base::Simd level) {
          Picture picture = noise_picture(size, channels, 5);
          OneUnit(text).apply(picture);
          if (expected.empty()) expected = picture.levels;
          EXPECT_EQ(picture.levels, expected) << text << " at " << base::name_of(level);
        });
      }
}

TEST(PixelOps, OddSizesAndGrayImagesWork) {  // AddressSanitizer checks reads and writes
  for (const std::string& text : kUnits) {
    OneUnit unit(text);
    for (const int channels : {1, 3})
      for (const Size size : {Size{1, 1}, Size{2, 1}, Size{1, 3}, Size{3, 3}, Size{65, 2}}) {
        Picture picture = noise_picture(size, channels, 6);
        unit.apply(picture);
      }
  }
}

TEST(PixelOps, BytesBetweenRowsStay) {
  const Size size{37, 11};
  for (const std::string& text : kUnits)
    for (const int channels : {1, 3}) {
      OneUnit unit(text);
      const millrace_pixel* pixel = unit.unit().table().pixel;
      if (pixel == nullptr || pixel->apply == nullptr) continue;
      Picture together = noise_picture(size, channels, 7);
      Picture apart({size.width + 9, size.height}, channels);
      std::fill(apart.levels.begin(), apart.levels.end(), 0xA5);
      for (int y = 0; y < size.height; ++y)
        for (int x = 0; x < size.width; ++x)
          for (int c = 0; c < channels; ++c) apart.at(x, y, c) = together.at(x, y, c);
      unit.apply(together);
      unit.apply_to_part(apart, size);
      for (int y = 0; y < size.height; ++y)
        for (int x = 0; x < size.width + 9; ++x)
          for (int c = 0; c < channels; ++c)
            ASSERT_EQ(apart.at(x, y, c), x < size.width ? together.at(x, y, c) : 0xA5)
                << text << " at " << x << ", " << y;
    }
}

TEST(PixelOps, CallsAllocateNothing) {
  if (!pipeline::counts_allocations()) GTEST_SKIP() << "a sanitizer owns operator new";
  for (const std::string& text : kUnits)
    for (const int channels : {1, 3}) {
      OneUnit unit(text);
      Picture picture = noise_picture({40, 30}, channels, 8);
      Picture out = picture;
      unit.apply(picture, 0);  // stores the names of reported values
      for (std::uint64_t sample = 0; sample < 20; ++sample) {
        unit.prepare(picture);
        const std::uint64_t before = pipeline::allocations();
        unit.call(picture, out, sample);
        EXPECT_EQ(pipeline::allocations(), before) << text;
      }
    }
}

TEST(PixelOps, GrayImagesHaveNoColour) {
  for (const char* text : {"saturation{factor=0}", "hue{turn=0.5}", "grayscale{p=1}",
                           "color_jitter{saturation=[3,3],hue=[0.4,0.4]}"}) {
    Picture picture = noise_picture({9, 5}, 1, 9);
    const auto before = picture.levels;
    OneUnit(text).apply(picture);
    EXPECT_EQ(picture.levels, before) << text;
  }
}

TEST(BulkBits, AreTheGeneratorsBlocks) {
  EverySimdLevel().run([](base::Simd level) {
    Draw draw(base::stream({3, 0, 1}, base::op_id("bulk")));
    Draw same = draw;
    millrace_rng rng{};
    rng.key[0] = same.bits();
    rng.key[1] = same.bits();
    rng.used = 4;
    BulkBits bits(draw);
    std::vector<std::uint32_t> words;
    for (std::size_t most : {1, 100, 10000, 100, 10000}) {
      std::size_t count = 0;
      const std::uint32_t* taken = bits.take(most, count);
      words.insert(words.end(), taken, taken + count);
    }
    constexpr std::size_t kLanes = BulkBits::kLanes;
    ASSERT_EQ(words.size(), 2 * 4 * kLanes);
    for (std::size_t group = 0; group < 2; ++group)
      for (std::size_t block = 0; block < kLanes; ++block)
        for (std::size_t word = 0; word < 4; ++word)
          ASSERT_EQ(words[(group * 4 + word) * kLanes + block], millrace_rng_bits(&rng))
              << base::name_of(level);
  });
}

/// Smooths by definition: every tap of every element.
std::vector<double> smoothed(const std::vector<float>& in, Size size, int radius_x, int radius_y,
                             double sigma) {
  const auto weight = [&](int dx, int dy) {
    return std::exp(-0.5 * (dx * dx + dy * dy) / (sigma * sigma));
  };
  std::vector<double> out;
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x) {
      double sum = 0, weights = 0;
      for (int dy = -radius_y; dy <= radius_y; ++dy)
        for (int dx = -radius_x; dx <= radius_x; ++dx) {
          const int at = mirrored(y + dy, size.height) * size.width + mirrored(x + dx, size.width);
          sum += weight(dx, dy) * in[static_cast<std::size_t>(at)];
          weights += weight(dx, dy);
        }
      out.push_back(sum / weights);
    }
  return out;
}

TEST(Smooth, FollowsTheDefinition) {
  // Kernels smaller than, as large as and several times larger than the image.
  for (const auto& [size, radius_x, radius_y] : {std::tuple{Size{30, 20}, 3, 5},
                                                 {Size{9, 30}, 8, 2},
                                                 {Size{4, 5}, 11, 14},
                                                 {Size{1, 3}, 2, 2},
                                                 {Size{19, 8}, 0, 3}}) {
    std::vector<float> elements;
    Draw draw(base::stream({4, 0, 0}, base::op_id("smooth")));
    for (int i = 0; i < size.width * size.height; ++i)
      elements.push_back(static_cast<float>(draw.uniform(-1, 1)));
    const auto expected = smoothed(elements, size, radius_x, radius_y, 2.5);
    float x[16], y[16];
    const SmoothingPlan plan{size.width, size.height, 1, gaussian_weights(radius_x, 2.5, x),
                             gaussian_weights(radius_y, 2.5, y)};
    std::vector<std::max_align_t> scratch(plan.scratch() / sizeof(std::max_align_t) + 1);
    smooth(plan, elements.data(), scratch.data());
    for (std::size_t i = 0; i < elements.size(); ++i)
      ASSERT_NEAR(elements[i], expected[i], 2e-6) << size.width << "x" << size.height << ", " << i;
  }
}

TEST(Displace, OutsideIsFill) {
  Picture picture = noise_picture({4, 3}, 3, 10);
  const std::vector<float> far(12, 1e30f), none(12, 0.0f);
  const Image from = picture.image();
  for (const Interpolation way : {Interpolation::nearest, Interpolation::bilinear}) {
    Picture out(picture.size, 3);
    const ConstImage source{from.data, from.width, from.height, 3, from.row};
    displace(source, {none.data(), none.data()}, way, {1, 2, 3, 0}, out.image());
    EXPECT_EQ(out.levels, picture.levels);
    displace(source, {far.data(), none.data()}, way, {1, 2, 3, 0}, out.image());
    for (std::size_t i = 0; i < out.levels.size(); ++i) ASSERT_EQ(out.levels[i], i % 3 + 1);
  }
}

TEST(PixelOps, ParametersThatDontFitAreRefused) {
  for (const char* text :
       {"gaussian_blur{kernel_size=4}", "gaussian_blur{sigma=[2,1]}", "color_jitter{hue=-0.1}",
        "color_jitter{contrast=[2,1]}", "random_erasing{scale=[0.5,0.1]}",
        "jpeg_compression{quality=[60,50]}", "jpeg_compression{quality=0}",
        "random_erasing{ratio=[2,1]}", "elastic{sigma=[0,3]}", "rand_augment{magnitude=31}",
        "random_apply{ops=nonsense}", "random_apply{ops=mixup}"})
    EXPECT_THROW(OneUnit unit(text), UsageError) << text;
}

}  // namespace
}  // namespace millrace::augment
