// Tests chains as they run: folded against one op after the other, with index moves bit for bit.
#include "augment/plan/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "augment/plan/fold.h"
#include "augment/plan/resample.h"
#include "base/rng.h"
#include "millrace/buffer.h"
#include "millrace/error.h"
#include "plugins/host/registry.h"

namespace millrace::augment {
namespace {

/// Returns levels that differ from pixel to pixel and channel to channel.
std::vector<std::uint8_t> noise(Size size, int channels, std::uint64_t seed) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.width * size.height * channels) +
                                   kTailSlack);
  Draw draw(base::stream({seed, 0, 0}, base::op_id("noise")));
  for (auto& level : pixels) level = static_cast<std::uint8_t>(draw.bits());
  return pixels;
}

OpSpec spec(const std::string& op, const std::vector<std::pair<std::string, Value>>& values,
            std::string id = "") {
  for (const auto& declared : op_declarations()) {
    if (declared.name != op) continue;
    OpSpec result{op, id.empty() ? op : id, true, Params(declared.params)};
    for (const auto& [name, value] : values) result.params.set(name, value);
    return result;
  }
  throw std::runtime_error("no op " + op);
}

using List = std::vector<double>;

std::vector<std::uint8_t> run_u8(const std::vector<OpSpec>& chain, const ImageView& image,
                                 Resample resample, const SampleKey& key,
                                 Layout layout = Layout::hwc) {
  const Plan plan(chain, {image.size(), image.channels}, {DType::u8, layout, {0}, {1}}, resample);
  std::vector<std::uint8_t> out(plan.output().bytes());
  const auto scratch = plan.make_scratch();
  WholeImage source(image);
  plan.run(key, source, reinterpret_cast<std::byte*>(out.data()), *scratch);
  return out;
}

TEST(Plan, AnEmptyChainCopies) {
  for (const int channels : {1, 3}) {
    const auto pixels = noise({9, 7}, channels, 1);
    const auto out = run_u8({}, interleaved(pixels.data(), {9, 7}, channels), Resample::once, {});
    EXPECT_EQ(0, std::memcmp(out.data(), pixels.data(), out.size()));
  }
}

TEST(Plan, LayoutsHoldTheSameLevels) {
  const Size size{5, 4};
  const auto pixels = noise(size, 3, 2);
  const ImageView as_hwc = interleaved(pixels.data(), size, 3);
  const ImageView as_chw = planar(pixels.data(), size, 3);
  for (const ImageView& view : {as_hwc, as_chw}) {
    const auto hwc = run_u8({}, view, Resample::once, {}, Layout::hwc);
    const auto chw = run_u8({}, view, Resample::once, {}, Layout::chw);
    for (int y = 0; y < size.height; ++y)
      for (int x = 0; x < size.width; ++x)
        for (int c = 0; c < 3; ++c) {
          ASSERT_EQ(hwc[static_cast<std::size_t>((y * size.width + x) * 3 + c)], *view.at(x, y, c));
          ASSERT_EQ(chw[static_cast<std::size_t>((c * size.height + y) * size.width + x)],
                    *view.at(x, y, c));
        }
  }
}

TEST(Plan, PaddedCropTakesTheWindowThatItDrew) {
  const Size size{8, 6};
  const auto pixels = noise(size, 1, 3);
  const ImageView image = interleaved(pixels.data(), size, 1);
  const auto op =
      spec("random_crop", {{"size", List{6, 8}}, {"padding", List{2}}, {"fill", List{9}}});
  std::set<std::pair<int, int>> seen;
  for (std::uint64_t sample = 0; sample < 200; ++sample) {
    const SampleKey key{4, 0, sample};
    const auto out = run_u8({op}, image, Resample::once, key);
    Draw draw(base::stream(key, base::op_id("random_crop")));  // the op's own draws: y, then x
    const int dy = static_cast<int>(draw.integer(5)) - 2;
    const int dx = static_cast<int>(draw.integer(5)) - 2;
    seen.insert({dx, dy});
    for (int y = 0; y < 6; ++y)
      for (int x = 0; x < 8; ++x) {
        const bool inside = x + dx >= 0 && x + dx < 8 && y + dy >= 0 && y + dy < 6;
        ASSERT_EQ(out[static_cast<std::size_t>(y * 8 + x)], inside ? *image.at(x + dx, y + dy) : 9);
      }
  }
  EXPECT_EQ(seen.size(), 25u) << "every window is drawn";
}

TEST(Plan, FlipMirrorsHalfOfTheSamples) {
  const auto pixels = noise({7, 3}, 3, 5);
  const ImageView image = interleaved(pixels.data(), {7, 3}, 3);
  int flipped = 0;
  for (std::uint64_t sample = 0; sample < 1000; ++sample) {
    const auto out = run_u8({spec("hflip", {})}, image, Resample::once, {1, 2, sample});
    const bool is_flipped = 0 != std::memcmp(out.data(), pixels.data(), out.size());
    flipped += is_flipped;
    if (!is_flipped) continue;
    for (int x = 0; x < 7; ++x)
      ASSERT_EQ(out[static_cast<std::size_t>(x * 3 + 1)], *image.at(6 - x, 0, 1));
  }
  EXPECT_NEAR(flipped, 500, 60);
}

struct Chain {
  const char* name;
  std::vector<OpSpec> ops;
};

/// Returns chains with at most one resampling, which folding must not change by one bit.
std::vector<Chain> exact_chains(const char* interpolation) {
  const auto crop =
      spec("random_crop", {{"size", List{20, 24}}, {"padding", List{3}}, {"fill", List{50}}});
  const auto small = spec("random_crop", {{"size", List{11, 9}}, {"fill", List{90}}}, "small");
  const auto flip = spec("hflip", {});
  const auto affine = spec("random_affine", {{"degrees", List{40}},
                                             {"translate", List{0.2}},
                                             {"scale", List{0.5, 1.7}},
                                             {"shear", List{-20, 20, -10, 10}},
                                             {"fill", List{200}},
                                             {"interpolation", std::string(interpolation)}});
  return {{"crop, flip, affine", {crop, flip, affine}},
          {"affine, flip, crop", {affine, flip, crop}},
          {"crop, affine, small, flip", {crop, affine, small, flip}},
          {"flip, affine, flip#2, crop", {flip, affine, spec("hflip", {}, "hflip#2"), crop}},
          {"crop, small, flip", {crop, small, flip}}};
}

TEST(Plan, FoldingIndexMovesChangesNoBit) {
  for (const char* interpolation : {"nearest", "bilinear"}) {
    for (const Chain& chain : exact_chains(interpolation)) {
      for (const int channels : {1, 3}) {
        for (std::uint64_t sample = 0; sample < 60; ++sample) {
          const Size size{22, 19};
          const auto pixels = noise(size, channels, sample);
          const ImageView image = interleaved(pixels.data(), size, channels);
          const SampleKey key{6, 1, sample};
          ASSERT_EQ(run_u8(chain.ops, image, Resample::once, key),
                    run_u8(chain.ops, image, Resample::stepwise, key))
              << chain.name << ", " << interpolation << ", sample " << sample;
        }
      }
    }
  }
}

/// Computes one warp pixel by pixel from its definition, as the reference of the row kernels.
std::uint8_t reference(const Warp& warp, const ImageView& image, int x, int y, int c) {
  const double u = warp.map[0] * (x + 0.5) + warp.map[1] * (y + 0.5) + warp.map[2];
  const double v = warp.map[3] * (x + 0.5) + warp.map[4] * (y + 0.5) + warp.map[5];
  const auto level = [&](int i, int j) -> double {
    const bool inside =
        i >= warp.window.x0 && i < warp.window.x1 && j >= warp.window.y0 && j < warp.window.y1;
    return inside ? *image.at(i, j, c) : warp.fill[static_cast<std::size_t>(c)];
  };
  if (warp.interpolation == MILLRACE_NEAREST)
    return static_cast<std::uint8_t>(
        level(static_cast<int>(std::floor(u)), static_cast<int>(std::floor(v))));
  const double fu = std::floor(u - 0.5), fv = std::floor(v - 0.5);
  const double a = u - 0.5 - fu, b = v - 0.5 - fv;
  const int i = static_cast<int>(fu), j = static_cast<int>(fv);
  const double value = (level(i, j) * (1 - a) + level(i + 1, j) * a) * (1 - b) +
                       (level(i, j + 1) * (1 - a) + level(i + 1, j + 1) * a) * b;
  return static_cast<std::uint8_t>(std::nearbyint(value));
}

TEST(Resample, RowKernelsFollowTheDefinition) {
  const auto affine = spec("random_affine", {{"degrees", List{180}},
                                             {"translate", List{0.5}},
                                             {"scale", List{0.2, 4}},
                                             {"shear", List{-40, 40, -30, 30}},
                                             {"fill", List{77}}});
  const plugins::Unit unit(plugins::augmentation("random_affine"), affine.params);
  plugins::CallContext context;
  std::size_t off = 0, far = 0, all = 0;
  for (std::uint64_t sample = 0; sample < 300; ++sample) {
    Draw shape(base::stream({9, 9, sample}, 1));
    const Size size{1 + static_cast<int>(shape.integer(40)),
                    1 + static_cast<int>(shape.integer(40))};
    const auto pixels = noise(size, 3, sample);
    const ImageView image = interleaved(pixels.data(), size, 3);
    for (const auto way : {Interpolation::nearest, Interpolation::bilinear}) {
      context.call.rng = base::stream({9, 9, sample}, 2);
      Warp warp;
      unit.table().geometric->warp(unit.self(), size, &warp, &context.call);
      warp.set_interpolation(way);
      Fold fold(size);
      ASSERT_TRUE(fold.add(warp));
      std::vector<std::uint8_t> out(pixels.size());
      ResampleScratch scratch;
      resample(fold.pass(image), out.data(), scratch);
      for (int y = 0; y < size.height; ++y)
        for (int x = 0; x < size.width; ++x)
          for (int c = 0; c < 3; ++c, ++all) {
            const int ours = out[static_cast<std::size_t>((y * size.width + x) * 3 + c)];
            const int exact = reference(warp, image, x, y, c);
            if (way == Interpolation::nearest)
              off += ours != exact;  // a position exactly on a pixel's edge
            if (way == Interpolation::bilinear) far += std::abs(ours - exact) > 1;
          }
    }
  }
  EXPECT_LE(off, all / 100000) << "of " << all;
  EXPECT_EQ(far, 0u) << "of " << all;
}

TEST(Plan, ExtremeParametersShowFill) {
  // The extremes of random_affine and random_crop: nothing overflows (the sanitizers check), and
  // pixels moved far away show the fill.
  const auto pixels = noise({28, 28}, 1, 1);
  const ImageView image = interleaved(pixels.data(), {28, 28}, 1);
  for (const char* interpolation : {"nearest", "bilinear"}) {
    const auto far = spec("random_affine", {{"degrees", List{30, 30}},
                                            {"scale", List{0.01}},
                                            {"shear", List{89, 89, 89, 89}},
                                            {"center", List{65535, 65535}},
                                            {"fill", List{7}},
                                            {"interpolation", std::string(interpolation)}});
    std::vector<OpSpec> chain{far};
    for (const char* id : {"a", "b", "c", "d"})
      chain.push_back(spec("random_crop",
                           {{"size", List{28}}, {"padding", List{65535}}, {"fill", List{7}}}, id));
    chain.push_back(spec(
        "random_affine",
        {{"degrees", List{15}}, {"fill", List{7}}, {"interpolation", std::string(interpolation)}},
        "again"));
    for (std::uint64_t sample = 0; sample < 5; ++sample)
      for (const std::uint8_t level : run_u8(chain, image, Resample::once, {1, 1, sample}))
        ASSERT_EQ(level, 7);
  }
}

TEST(Plan, NothingOutsideTheImageIsRead) {
  // Places the picture inside a larger buffer of another level, which must not come out.
  const Size size{13, 11};
  std::vector<std::uint8_t> field(64 * 64, 255);
  for (int y = 0; y < size.height; ++y)
    std::memset(&field[static_cast<std::size_t>((20 + y) * 64 + 20)], 100, 13);
  ImageView image = interleaved(&field[20 * 64 + 20], size, 1);
  image.row = 64;
  for (const char* interpolation : {"nearest", "bilinear"}) {
    auto affine = spec("random_affine", {{"degrees", List{180}},
                                         {"scale", List{0.3, 3}},
                                         {"translate", List{0.5}},
                                         {"fill", List{0}},
                                         {"interpolation", std::string(interpolation)}});
    const auto crop = spec("random_crop", {{"size", List{11, 13}}, {"padding", List{5}}});
    for (std::uint64_t sample = 0; sample < 200; ++sample)
      for (const std::uint8_t level : run_u8({crop, affine}, image, Resample::once, {1, 1, sample}))
        ASSERT_LE(level, 100);
  }
}

TEST(Plan, DisablingAnOpLeavesTheOthersDrawsAlone) {
  const auto pixels = noise({16, 16}, 1, 8);
  const ImageView image = interleaved(pixels.data(), {16, 16}, 1);
  auto flip = spec("hflip", {});
  const auto affine = spec("random_affine", {{"degrees", List{30}}});
  flip.enabled = false;
  for (std::uint64_t sample = 0; sample < 20; ++sample)
    EXPECT_EQ(run_u8({flip, affine}, image, Resample::once, {1, 0, sample}),
              run_u8({affine}, image, Resample::once, {1, 0, sample}));
}

TEST(Plan, FloatsAreTheNormalisedLevels) {
  const auto pixels = noise({6, 5}, 3, 11);
  const ImageView image = interleaved(pixels.data(), {6, 5}, 3);
  const Plan plan({}, {{6, 5}, 3}, {DType::f32, Layout::chw, {0.4, 0.5, 0.6}, {0.2, 0.25, 0.3}},
                  Resample::once);
  std::vector<float> out(plan.output().elements());
  const auto scratch = plan.make_scratch();
  WholeImage source(image);
  plan.run({}, source, reinterpret_cast<std::byte*>(out.data()), *scratch);
  const float mean[3] = {0.4f, 0.5f, 0.6f}, std_of[3] = {0.2f, 0.25f, 0.3f};
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < 5; ++y)
      for (int x = 0; x < 6; ++x)
        ASSERT_EQ(out[static_cast<std::size_t>((c * 5 + y) * 6 + x)],
                  (static_cast<float>(*image.at(x, y, c)) / 255.0f - mean[c]) / std_of[c]);
}

TEST(Plan, RefusesWhatDoesNotFit) {
  EXPECT_THROW(Plan({spec("random_crop", {{"size", List{40}}})}, {{28, 28}, 1}, {}, Resample::once),
               UsageError);
  EXPECT_THROW(
      Plan({}, {{28, 28}, 1}, {DType::f32, Layout::chw, {0.1, 0.2, 0.3}, {1}}, Resample::once),
      UsageError);
  const auto pixels = noise({9, 9}, 1, 1);
  const Plan plan({}, {{8, 8}, 1}, {DType::u8, Layout::chw, {0}, {1}}, Resample::once);
  std::vector<std::byte> out(1000);
  const auto scratch = plan.make_scratch();
  WholeImage source(interleaved(pixels.data(), {9, 9}, 1));
  EXPECT_THROW(plan.run({}, source, out.data(), *scratch), UsageError);
  // Tests that an image that an op rejects fails alone: the chain was compiled for another size.
  const Plan crop({spec("random_crop", {{"size", List{8}}})}, {{8, 8}, 1},
                  {DType::u8, Layout::chw, {0}, {1}}, Resample::once);
  WholeImage small(interleaved(pixels.data(), {7, 9}, 1));
  EXPECT_THROW(crop.run({}, small, out.data(), *scratch), DataError);
  const Plan shorter({spec("resize", {{"size", List{800}}})}, {{8, 8}, 1},
                     {DType::u8, Layout::chw, {0}, {1}}, Resample::once);
  const std::vector<std::uint8_t> line(100);
  WholeImage narrow(interleaved(line.data(), {1, 100}, 1));  // would become 800x80000
  EXPECT_THROW(shorter.run({}, narrow, out.data(), *scratch), DataError);
  const auto upside_down = spec("random_affine", {{"scale", List{2, 1}}});
  EXPECT_THROW(plugins::Unit(plugins::augmentation("random_affine"), upside_down.params),
               UsageError);
  for (const auto& declared : op_declarations())
    if (declared.name == "random_crop") {
      EXPECT_THROW(parse_value(declared.params[0], "7.9", "test"), UsageError);
    }
}

TEST(Plan, PadIfNeededCentresWhatIsSmall) {
  const auto pixels = noise({4, 4}, 1, 2);
  const auto op =
      spec("random_crop", {{"size", List{8}}, {"pad_if_needed", true}, {"fill", List{1}}});
  const auto out = run_u8({op}, interleaved(pixels.data(), {4, 4}, 1), Resample::once, {});
  EXPECT_EQ(out.size(), 64u);
}

}  // namespace
}  // namespace millrace::augment
