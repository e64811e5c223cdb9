// Compares random_affine, its sampling and the normalising store with torchvision's
// (tests/golden/make_augment.py).
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "augment/ops/geometry.h"
#include "augment/plan/fold.h"
#include "augment/plan/resample.h"

namespace millrace::augment {
namespace {

const nlohmann::json& golden() {
  static const nlohmann::json all =
      nlohmann::json::parse(std::ifstream(MILLRACE_GOLDEN "/augment.json"));
  return all;
}

std::vector<std::uint8_t> bytes_of_hex(const std::string& hex) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

/// Equals picture(1) of make_augment.py.
std::vector<std::uint8_t> picture(int width, int height) {
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      pixels.push_back(
          static_cast<std::uint8_t>((x * 7 + y * 11 + (x / 9 + y / 6) % 2 * 60) % 256));
  return pixels;
}

std::vector<std::uint8_t> warped(const nlohmann::json& item, Interpolation interpolation,
                                 std::uint8_t fill) {
  const Size size{golden()["width"], golden()["height"]};
  std::vector<std::uint8_t> source = picture(size.width, size.height);
  const AffineParameters p{item["degrees"], item["translate"][0], item["translate"][1],
                           item["scale"],   item["shear"][0],     item["shear"][1]};
  const auto m = inverse_affine(p, size.width * 0.5, size.height * 0.5);
  Warp warp = Warp::identity(size);
  warp.set_map(m[0], m[1], m[2], m[3], m[4], m[5]);
  std::memset(warp.fill, fill, sizeof warp.fill);
  warp.set_interpolation(interpolation);
  Fold fold(size);
  EXPECT_TRUE(fold.add(warp));
  std::vector<std::uint8_t> out(source.size());
  ResampleScratch scratch;
  resample(fold.pass(interleaved(source.data(), size, 1)), out.data(), scratch);
  return out;
}

TEST(Golden, TheMatrixIsTorchvisions) {
  for (const auto& item : golden()["affine"]) {
    const AffineParameters p{item["degrees"], item["translate"][0], item["translate"][1],
                             item["scale"],   item["shear"][0],     item["shear"][1]};
    const auto m =
        inverse_affine(p, golden()["width"].get<int>() * 0.5, golden()["height"].get<int>() * 0.5);
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_NEAR(m[i], item["matrix"][i].get<double>(), 1e-12) << item["degrees"];
  }
}

TEST(Golden, NearestPicksTorchvisionsPixels) {
  // Positions within rounding of a pixel's edge may fall either way: torchvision computes them in
  // f32 (tensors) or f64 (PIL), millrace in fixed point. At most 0.5% of pixels may agree with
  // neither.
  std::size_t differing = 0, all = 0;
  for (const auto& item : golden()["affine"]) {
    const auto ours = warped(item, Interpolation::nearest, 37);
    const auto tensor = bytes_of_hex(item["nearest"]);
    const auto pil = bytes_of_hex(item["nearest_pil"]);
    ASSERT_EQ(ours.size(), tensor.size());
    for (std::size_t i = 0; i < ours.size(); ++i)
      differing += ours[i] != pil[i] && ours[i] != tensor[i];
    all += ours.size();
  }
  EXPECT_LE(differing, all / 200) << "of " << all;
}

TEST(Golden, BilinearIsWithinOneLevel) {
  std::size_t beyond = 0, all = 0;
  for (const auto& item : golden()["affine"]) {
    const auto ours = warped(item, Interpolation::bilinear, 0);
    const auto theirs = bytes_of_hex(item["bilinear"]);
    for (std::size_t i = 0; i < ours.size(); ++i) beyond += std::abs(ours[i] - theirs[i]) > 1;
    all += ours.size();
  }
  EXPECT_EQ(beyond, 0u) << "of " << all;
}

TEST(Golden, NormalisedLevelsHaveTorchsBits) {
  for (const auto& item : golden()["levels"]) {
    const Store store(DType::f32, Layout::chw, 1, {item["mean"].get<double>()},
                      {item["std"].get<double>()});
    const auto expected = bytes_of_hex(item["bits"]);
    for (std::size_t level = 0; level < 256; ++level) {
      std::uint32_t bits = 0;
      for (std::size_t b = 0; b < 4; ++b) bits = bits << 8 | expected[level * 4 + b];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(store.levels(0)[level]), bits) << "level " << level;
    }
  }
}

}  // namespace
}  // namespace millrace::augment
