// Compares geometric augmentations with torchvision's (tests/golden/make_geometry.py), and fused
// chains with one op after the other.
#include "augment/ops/geometry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "augment/plan/fold.h"
#include "augment/plan/plan.h"
#include "augment/plan/resample.h"
#include "millrace/buffer.h"
#include "millrace/error.h"
#include "plugins/host/registry.h"

namespace millrace::augment {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes bytes(const std::string& hex) {
  Bytes out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

/// Equals picture() of make_geometry.py.
Bytes picture(Size size, int channels) {
  Bytes pixels;
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x)
      for (int c = 0; c < channels; ++c)
        pixels.push_back(
            static_cast<std::uint8_t>((x * 7 + y * 11 + c * 40 + (x / 9 + y / 6) % 2 * 60) % 256));
  pixels.resize(pixels.size() + kTailSlack);
  return pixels;
}

/// Returns a picture as smooth as a photograph: a few waves, levels 20 to 235.
Bytes waves(Size size, int channels) {
  Bytes pixels;
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x)
      for (int c = 0; c < channels; ++c)
        pixels.push_back(static_cast<std::uint8_t>(127.5 + 50 * std::sin(x * 0.11 + c) +
                                                   57 * std::cos(y * 0.07 - x * 0.03)));
  pixels.resize(pixels.size() + kTailSlack);
  return pixels;
}

std::vector<OpSpec> chain_of(const std::vector<std::string>& ops) {
  Recipe recipe(op_declarations());
  for (const std::string& op : ops) recipe.set("augment+=" + op);
  return recipe.augment();
}

/// Counts requests for pixels and keeps the last region.
class Watched final : public PixelSource {
 public:
  explicit Watched(const ImageView& image) : image_(image) {}
  Size size() const override { return image_.size(); }
  bool serves_regions() const override { return true; }
  ImageView pixels(const Rect& region, int) override {
    ++calls;
    asked = region;
    return image_;
  }
  int calls = 0;
  Rect asked{};

 private:
  ImageView image_;
};

struct Ran {
  Bytes pixels;
  Size size;
  Trace trace;
};

Ran run(const std::vector<std::string>& ops, PixelSource& source, int channels, Resample resample,
        std::uint64_t sample = 0) {
  const Plan plan(chain_of(ops), {source.size(), channels}, {DType::u8, Layout::hwc, {0}, {1}},
                  resample);
  Ran ran;
  ran.size = plan.output().size;
  ran.pixels.resize(plan.output().bytes());
  const auto scratch = plan.make_scratch();
  plan.run({3, 1, sample}, source, reinterpret_cast<std::byte*>(ran.pixels.data()), *scratch,
           &ran.trace);
  return ran;
}

struct Difference {
  int most = 0;
  double mean = 0;
};

Difference difference(const Bytes& a, const Bytes& b) {
  Difference d;
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const int level = std::abs(a[i] - b[i]);
    d.most = std::max(d.most, level);
    d.mean += level;
  }
  d.mean /= static_cast<double>(a.size());
  return d;
}

TEST(Geometry, FollowsTorchvision) {
  const auto golden = nlohmann::json::parse(std::ifstream(MILLRACE_GOLDEN "/geometry.json"));
  for (const auto& item : golden["cases"]) {
    const auto chain = item["chain"].get<std::vector<std::string>>();
    const Size size{item["width"], item["height"]};
    const int channels = item["channels"];
    const Bytes pixels = picture(size, channels);
    for (const Resample way : {Resample::once, Resample::stepwise}) {
      WholeImage source(interleaved(pixels.data(), size, channels));
      const Ran ran = run(chain, source, channels, way);
      EXPECT_EQ(ran.size.height, item["out"][0].get<int>()) << item["chain"];
      EXPECT_EQ(ran.size.width, item["out"][1].get<int>()) << item["chain"];
      const Difference d = difference(ran.pixels, bytes(item["pixels"]));
      EXPECT_LE(d.most, item["tolerance"].get<int>()) << item["chain"] << " mean " << d.mean;
    }
  }
}

TEST(Geometry, PerspectiveFollowsTorchvision) {
  const auto golden = nlohmann::json::parse(std::ifstream(MILLRACE_GOLDEN "/geometry.json"));
  const Size size{34, 21};
  const Bytes pixels = picture(size, 1);
  for (const auto& item : golden["perspectives"]) {
    Corners from, to;
    for (std::size_t i = 0; i < 4; ++i) {
      from[i] = {item["from"][i][0], item["from"][i][1]};
      to[i] = {item["to"][i][0], item["to"][i][1]};
    }
    for (const auto way : {Interpolation::nearest, Interpolation::bilinear}) {
      const auto map = perspective_map(from, to);
      Warp warp = Warp::identity(size);
      std::copy(map.begin(), map.end(), warp.map);
      warp.set_interpolation(way);
      Fold fold(size);
      ASSERT_TRUE(fold.add(warp));
      Bytes out(34 * 21);
      ResampleScratch scratch;
      resample(fold.pass(interleaved(pixels.data(), size, 1)), out.data(), scratch);
      const bool nearest = way == Interpolation::nearest;
      const Bytes expected = bytes(item[nearest ? "nearest" : "bilinear"]);
      std::size_t off = 0;
      for (std::size_t i = 0; i < out.size(); ++i)
        off += std::abs(out[i] - expected[i]) > (nearest ? 0 : 1);
      // torchvision solves for the map in single precision, so positions on an edge may differ.
      EXPECT_LE(off, out.size() / 200) << item["to"];
    }
  }
}

TEST(Geometry, RandomResizedCropDrawsWhatTorchvisionDoes) {
  const Size size{100, 60};
  const Bytes pixels = picture(size, 1);
  double area = 0;
  double low_ratio = 10, high_ratio = 0;
  std::set<std::pair<double, double>> corners;
  constexpr int kSamples = 2000;
  for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
    WholeImage source(interleaved(pixels.data(), size, 1));
    const Ran ran = run({"random_resized_crop{size=8}"}, source, 1, Resample::once, sample);
    double left = 0, top = 0, width = 0, height = 0;
    for (const auto& drawn : ran.trace.drawn) {
      if (drawn.name == "left") left = drawn.value;
      if (drawn.name == "top") top = drawn.value;
      if (drawn.name == "width") width = drawn.value;
      if (drawn.name == "height") height = drawn.value;
    }
    ASSERT_GE(left, 0);
    ASSERT_GE(top, 0);
    ASSERT_LE(left + width, size.width);
    ASSERT_LE(top + height, size.height);
    area += width * height / 6000;
    low_ratio = std::min(low_ratio, width / height);
    high_ratio = std::max(high_ratio, width / height);
    corners.insert({left, top});
  }
  // Expected value simulated with torchvision's get_params on the same size: mean 0.3605 over
  // 20,000. Windows that do not fit are drawn again, which favours small ones over the 0.54 of the
  // parameters.
  EXPECT_NEAR(area / kSamples, 0.3605, 0.012);
  EXPECT_NEAR(low_ratio, 0.75, 0.06);
  EXPECT_NEAR(high_ratio, 1.3333, 0.1);
  EXPECT_GT(corners.size(), 1000u);
}

struct Fused {
  const char* name;
  std::vector<std::string> ops;
  std::size_t walks;  ///< traversals of pixels when fused, the first of a source included
  int most;           ///< difference from stepwise in levels, on a smooth picture
  double mean;
};

const std::vector<Fused>& fused_chains() {
  static const std::vector<Fused> chains{
      {"crop, rotate",
       {"random_crop{size=[60,70]}", "random_rotation{degrees=30,interpolation=bilinear,fill=9}"},
       1,
       0,
       0},
      {"pad a, affine b",
       {"pad{padding=9,fill=200}",
        "random_affine{degrees=20,scale=[0.7,1.3],fill=30,interpolation=bilinear}"},
       1,
       0,
       0},
      {"resize 1/8, rotate",
       {"resize{size=[12,16]}", "random_rotation{degrees=30,interpolation=bilinear}"},
       2,
       0,
       0},
      {"resize, center_crop, flip",
       {"resize{size=50}", "center_crop{size=40}", "hflip{p=1}"},
       1,
       0,
       0},
      {"random_resized_crop, flip, flip",
       {"random_resized_crop{size=32}", "vflip{p=1}", "hflip{p=1}"},
       1,
       0,
       0},
      {"crop, resize, resize",
       {"crop{left=5,top=4,width=100,height=80}", "resize{size=[60,70]}", "resize{size=[30,35]}"},
       1,
       3,
       0.6},
      {"rotate, affine",
       {"random_rotation{degrees=[20,20],interpolation=bilinear,fill=100}",
        "random_affine{degrees=[-20,-20],scale=[1,1],fill=100,interpolation=bilinear}"},
       1,
       60,
       1.5},
      {"nearest, flip, nearest",
       {"random_rotation{degrees=15,fill=127}", "hflip{p=1}", "random_affine{degrees=15,fill=127}"},
       1,
       110,
       4.0},
      {"bilinear, nearest",
       {"random_rotation{degrees=30,interpolation=bilinear}", "random_affine{degrees=10}"},
       2,
       0,
       0},
  };
  return chains;
}

TEST(Geometry, FusedChainsAgainstStepwise) {
  const Size size{128, 96};
  const Bytes pixels = waves(size, 3);
  for (const Fused& chain : fused_chains()) {
    Difference worst;
    for (std::uint64_t sample = 0; sample < 20; ++sample) {
      WholeImage source(interleaved(pixels.data(), size, 3));
      const Ran once = run(chain.ops, source, 3, Resample::once, sample);
      const Ran stepwise = run(chain.ops, source, 3, Resample::stepwise, sample);
      const Difference d = difference(once.pixels, stepwise.pixels);
      worst.most = std::max(worst.most, d.most);
      worst.mean = std::max(worst.mean, d.mean);
      std::size_t passes = 0;
      for (const auto& step : once.trace.steps) passes += step.what == "pass";
      EXPECT_EQ(passes, chain.walks) << chain.name;
    }
    std::printf("  %-34s most %3d levels, mean %.3f\n", chain.name, worst.most, worst.mean);
    EXPECT_LE(worst.most, chain.most) << chain.name;
    EXPECT_LE(worst.mean, chain.mean) << chain.name;
  }
}

TEST(Geometry, WhatACropRemovedStaysRemoved) {
  // Crops the bright frame off a dark image: the crop removes the frame, whatever is folded behind
  // it.
  const Size size{60, 50};
  Bytes pixels(60 * 50 + kTailSlack, 255);
  for (int y = 10; y < 40; ++y) std::memset(&pixels[static_cast<std::size_t>(y * 60 + 10)], 50, 40);
  for (const char* warp :
       {"random_rotation{degrees=90,interpolation=bilinear}",
        "random_affine{degrees=45,scale=[0.3,2],translate=0.4}", "random_perspective{p=1}",
        "resize{size=[11,13]}", "resize{size=[77,99],antialias=false}"}) {
    for (const char* more : {"hflip", "random_rotation{degrees=40,interpolation=bilinear}"})
      for (std::uint64_t sample = 0; sample < 30; ++sample) {
        WholeImage source(interleaved(pixels.data(), size, 1));
        const Ran ran = run({"crop{left=10,top=10,width=40,height=30}", warp, more}, source, 1,
                            Resample::once, sample);
        EXPECT_LE(*std::max_element(ran.pixels.begin(), ran.pixels.end()), 50) << warp << more;
      }
  }
}

TEST(Geometry, OnlyTheRegionThatIsAskedForIsRead) {
  // Overwrites everything outside the region after a first run; the result must not change.
  const Size size{97, 83};
  for (const auto& ops : std::vector<std::vector<std::string>>{
           {"random_resized_crop{size=24}", "hflip"},
           {"random_resized_crop{size=24,antialias=false}", "vflip"},
           {"random_resized_crop{size=24,interpolation=nearest}"},
           {"random_crop{size=40,padding=9}", "hflip", "random_rotation{degrees=20}"},
           {"random_crop{size=40}", "random_affine{degrees=30,interpolation=bilinear}", "vflip"},
           {"random_crop{size=30}", "random_perspective{p=1}"},
           {"center_crop{size=50}", "resize{size=[20,21]}", "center_crop{size=9}", "hflip"},
           {"resize{size=[40,50]}", "random_crop{size=11}"},
           {"crop{left=90,top=70,width=50,height=60}", "hflip"},
           {"random_affine{degrees=40,interpolation=bilinear}", "center_crop{size=10}"}}) {
    for (std::uint64_t sample = 0; sample < 40; ++sample) {
      Bytes pixels = waves(size, 3);
      Watched source(interleaved(pixels.data(), size, 3));
      const Ran whole = run(ops, source, 3, Resample::once, sample);
      EXPECT_EQ(source.calls, 1);
      const Rect r = source.asked;
      for (int y = 0; y < size.height; ++y)
        for (int x = 0; x < size.width; ++x)
          if (x < r.x0 || x >= r.x1 || y < r.y0 || y >= r.y1)
            for (int c = 0; c < 3; ++c)
              pixels[static_cast<std::size_t>((y * 97 + x) * 3 + c)] ^= 255;
      const Ran again = run(ops, source, 3, Resample::once, sample);
      EXPECT_EQ(whole.pixels, again.pixels) << ops.front() << " sample " << sample;
    }
  }
}

TEST(Geometry, RightAnglesAreExactAndStridesOnly) {
  const Size size{31, 19};
  const Bytes pixels = picture(size, 3);
  const ImageView image = interleaved(pixels.data(), size, 3);
  for (int turns = 0; turns < 4; ++turns) {
    IndexMove move;
    Size out = size;
    for (int i = 0; i < turns; ++i) {
      // Turned left: x' = y, y' = the last row's x.
      move = composed(move, {0, -1, out.width - 1, 1, 0, 0});
      out = {out.height, out.width};
    }
    const ImageView turned = viewed(image, move, out);
    for (int y = 0; y < out.height; ++y)
      for (int x = 0; x < out.width; ++x)
        ASSERT_EQ(*turned.at(x, y, 1), *image.at(move.xx * x + move.xy * y + move.x0,
                                                 move.yx * x + move.yy * y + move.y0, 1));
    const Rect r{2, 3, 9, 7};
    EXPECT_EQ(pulled_back(moved(r, move), move), r);
  }
}

TEST(Geometry, DctLeavesPowersOfTwoToTheDecoder) {
  /// Serves a picture at 1/2 or 1/4 by averaging pixels, as a decoder's scales do.
  class Scaled final : public PixelSource {
   public:
    Scaled(const Bytes& pixels, Size size) : pixels_(pixels), size_(size) {}
    Size size() const override { return size_; }
    std::uint32_t scales() const override { return 0b111; }
    ImageView pixels(const Rect&, int scale) override {
      asked = scale;
      const int n = 1 << scale;
      const Size small{(size_.width + n - 1) / n, (size_.height + n - 1) / n};
      small_.assign(static_cast<std::size_t>(small.width * small.height) + kTailSlack, 0);
      for (int y = 0; y < small.height; ++y)
        for (int x = 0; x < small.width; ++x) {
          int sum = 0, count = 0;
          for (int j = y * n; j < std::min(size_.height, y * n + n); ++j)
            for (int i = x * n; i < std::min(size_.width, x * n + n); ++i, ++count)
              sum += pixels_[static_cast<std::size_t>(j * size_.width + i)];
          small_[static_cast<std::size_t>(y * small.width + x)] =
              static_cast<std::uint8_t>((sum + count / 2) / count);
        }
      return interleaved(small_.data(), small, 1);
    }
    int asked = 0;

   private:
    const Bytes& pixels_;
    Size size_;
    Bytes small_;
  };
  const Size size{203, 157};
  const Bytes pixels = waves(size, 1);
  for (const auto& [op, scale] :
       std::vector<std::pair<std::string, int>>{{"resize{size=[150,190]}", 0},
                                                {"resize{size=[60,80]}", 1},
                                                {"resize{size=[20,30]}", 2}}) {
    PlanOptions options;
    options.dct = true;
    for (const char* flip : {"hflip{p=0}", "hflip{p=1}"}) {
      const auto chain = chain_of({"crop{left=21,top=13,width=170,height=140}", flip, op, "vflip"});
      const Plan plan(chain, {size, 1}, {DType::u8, Layout::hwc, {0}, {1}}, options);
      const Plan exact(chain, {size, 1}, {DType::u8, Layout::hwc, {0}, {1}}, Resample::once);
      Bytes out(plan.output().bytes()), reference(out.size());
      const auto scratch = plan.make_scratch();
      Scaled source(pixels, size);
      plan.run({}, source, reinterpret_cast<std::byte*>(out.data()), *scratch);
      EXPECT_EQ(source.asked, scale) << op;
      exact.run({}, source, reinterpret_cast<std::byte*>(reference.data()), *scratch);
      const Difference d = difference(out, reference);
      EXPECT_LE(d.mean, 1.5) << op;
      EXPECT_LE(d.most, 12) << op;
    }
  }
}

}  // namespace
}  // namespace millrace::augment
