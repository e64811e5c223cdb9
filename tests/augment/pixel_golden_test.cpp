// Compares pixel ops, and the operations of auto_augment, rand_augment and trivial_augment, with
// torchvision's on 8-bit tensors (tests/golden/make_pixel.py).
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>

#include "augment/ops/auto_augment_policies.h"
#include "augment/ops/pixels.h"
#include "augment/plan/plan.h"
#include "millrace/buffer.h"
#include "tests/augment/one_unit.h"

namespace millrace::augment {
namespace {

const nlohmann::json& golden() {
  static const nlohmann::json all =
      nlohmann::json::parse(std::ifstream(MILLRACE_GOLDEN "/pixel.json"));
  return all;
}
Size golden_size() { return {golden()["width"], golden()["height"]}; }

std::vector<std::uint8_t> from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint8_t> bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(digits.find(c));
    if ((count += 6) < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<std::uint8_t>(bits >> count));
  }
  return bytes;
}

struct Difference {
  int most = 0;            ///< in levels
  std::size_t beyond = 0;  ///< number of levels that differ by more than 1
  std::size_t any = 0;
  std::size_t all = 0;
  void add(const std::vector<std::uint8_t>& ours, const std::vector<std::uint8_t>& theirs) {
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const int by = std::abs(ours[i] - theirs[i]);
      most = std::max(most, by);
      beyond += by > 1;
      any += by > 0;
    }
    all += ours.size();
  }
};

/// Returns the levels by which an op may differ (as documented in docs/reference/augmentations.md).
int tolerance(const std::string& unit) { return unit == "gaussian_blur" ? 1 : 0; }

TEST(PixelGolden, FollowsTorchvision) {
  for (const auto& item : golden()["pixel"]) {
    const std::string unit = item["unit"];
    Picture picture = golden_picture(item["picture"], item["channels"], golden_size());
    OneUnit(unit).apply(picture);
    Difference difference;
    difference.add(picture.levels, from_base64(item["image"]));
    EXPECT_LE(difference.most, tolerance(unit.substr(0, unit.find('{'))))
        << unit << " on " << item["picture"] << ", " << item["channels"]
        << " channels: " << difference.any << " of " << difference.all << " levels differ";
  }
}

TEST(PixelGolden, EveryColourBecomesTorchvisions) {
  for (const auto& [text, crc] : golden()["colours"].items()) {
    OneUnit unit(text);
    Picture slab({4096, 256}, 3);
    uLong ours = crc32(0, nullptr, 0);
    for (std::uint32_t first = 0; first < 1u << 24; first += 4096 * 256) {
      for (std::uint32_t i = 0; i < 4096 * 256; ++i)
        for (std::uint32_t c = 0; c < 3; ++c)
          slab.levels[i * 3 + c] = static_cast<std::uint8_t>((first + i) >> (8 * c));
      unit.apply(slab);
      ours = crc32(ours, slab.levels.data(), static_cast<uInt>(slab.levels.size()));
    }
    EXPECT_EQ(ours, crc.get<uLong>()) << text;
  }
}

/// Runs one unit on a picture through a plan, which takes warps and pixel ops alike.
std::vector<std::uint8_t> run(const std::string& unit, Picture picture) {
  Recipe recipe(op_declarations());
  recipe.set("augment+=" + unit);
  picture.levels.resize(picture.levels.size() + kTailSlack);
  const ImageView view = interleaved(picture.levels.data(), picture.size, picture.channels);
  const Plan plan(recipe.augment(), {view.size(), view.channels},
                  {DType::u8, Layout::hwc, {0}, {1}}, Resample::once);
  std::vector<std::uint8_t> out(plan.output().bytes());
  const auto scratch = plan.make_scratch();
  WholeImage source(view);
  plan.run({}, source, reinterpret_cast<std::byte*>(out.data()), *scratch);
  return out;
}

/// Returns the child for `op` with `amount`, taken from the first sample that draws these; null if
/// none does.
const plugins::Unit* child_for(OneUnit& unit, const std::string& op, double amount) {
  const bool warps = op.starts_with("shear") || op.starts_with("translate") || op == "rotate";
  for (std::uint64_t sample = 0; sample < 20000; ++sample) {
    unit.forget();
    const auto chosen = unit.choose(sample);
    if (!unit.has_drawn(op) || std::abs(unit.drawn(op) - amount) >= 1e-4) continue;
    const auto performs_it = [&](const plugins::Unit* child) {
      return child->table().name == (warps ? "affine" : op);
    };
    // If both operations of a pair are performed by the same unit, another sample has to serve.
    if (std::count_if(chosen.begin(), chosen.end(), performs_it) == 1)
      return *std::find_if(chosen.begin(), chosen.end(), performs_it);
  }
  return nullptr;
}

/// Returns for each output pixel of a warp whether its position lies so near a pixel's edge that
/// torchvision's single precision may put it on the other side.
std::vector<bool> positions_on_edges(const plugins::Unit& unit, Size size) {
  plugins::CallContext context;
  Warp warp;
  plugins::checked_call(unit.table(), context.call, [&] {
    return unit.table().geometric->warp(unit.self(), size, &warp, &context.call);
  });
  const auto on_edge = [](double at) { return std::abs(at - std::round(at)) < 1e-4; };
  std::vector<bool> all;
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x)
      all.push_back(on_edge(warp.map[0] * (x + 0.5) + warp.map[1] * (y + 0.5) + warp.map[2]) ||
                    on_edge(warp.map[3] * (x + 0.5) + warp.map[4] * (y + 0.5) + warp.map[5]));
  return all;
}

TEST(PixelGolden, AutoAugmentsOperationsAreTorchvisions) {
  std::map<std::string, std::deque<OneUnit>> units;
  units["rand_augment"].emplace_back("rand_augment{num_ops=1}");
  units["trivial_augment"].emplace_back("trivial_augment");
  for (const char* policy : {"imagenet", "cifar10", "svhn"})
    units["auto_augment"].emplace_back(fmt::format("auto_augment{{policy={}}}", policy));
  std::size_t on_edges = 0, all = 0;
  for (const auto& item : golden()["warp"]) {
    const plugins::Unit* child = nullptr;
    for (OneUnit& unit : units.at(item["unit"]))
      if (child == nullptr) child = child_for(unit, item["op"], item["amount"]);
    ASSERT_NE(child, nullptr) << item["unit"] << " never drew " << item["op"] << " "
                              << item["amount"];
    std::vector<bool> may_differ(
        static_cast<std::size_t>(golden_size().width * golden_size().height), false);
    if (child->table().geometric != nullptr) may_differ = positions_on_edges(*child, golden_size());
    const auto ours = run(child->text(), golden_picture("smooth", 1, golden_size()));
    const auto theirs = from_base64(item["image"]);
    ASSERT_EQ(ours.size(), theirs.size());
    std::size_t differ = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) differ += !may_differ[i] && ours[i] != theirs[i];
    EXPECT_EQ(differ, 0u) << item["unit"] << ": " << child->text();
    on_edges += static_cast<std::size_t>(std::count(may_differ.begin(), may_differ.end(), true));
    all += ours.size();
  }
  EXPECT_LE(on_edges, all / 20) << "too few pixels were compared";
}

TEST(PixelGolden, AutoAugmentsPoliciesAreTorchvisions) {
  const char* const kOpNames[] = {"identity",     "shear_x",   "shear_y",    "translate_x",
                                  "translate_y",  "rotate",    "brightness", "saturation",
                                  "contrast",     "sharpness", "posterize",  "solarize",
                                  "autocontrast", "equalize",  "invert"};
  std::size_t number = 0;
  for (const char* policy : {"imagenet", "cifar10", "svhn"}) {
    nlohmann::json ours;
    for (const SubPolicy& sub_policy : kAutoAugmentPolicies[number++]) {
      nlohmann::json pair;
      for (const Step& step : sub_policy)
        pair.push_back({kOpNames[step.op], step.probability, step.magnitude});
      ours.push_back(pair);
    }
    EXPECT_EQ(ours, golden()["policies"][policy]) << policy;
  }
}

TEST(PixelGolden, DisplacedPixelsAreTorchvisions) {
  const Size size = golden_size();
  const auto count = static_cast<std::size_t>(size.width * size.height);
  std::vector<float> dx(count), dy(count);
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x) {
      const auto at = static_cast<std::size_t>(y * size.width + x);
      dx[at] = static_cast<float>((x * 5 + y * 3) % 97 - 48) / 16 + 1 / 64.0f;
      dy[at] = static_cast<float>((x * 2 + y * 7) % 89 - 44) / 16 + 1 / 64.0f;
    }
  for (const auto& item : golden()["elastic"]) {
    const bool nearest = item["interpolation"] == "nearest";
    Picture picture = golden_picture("smooth", item["channels"], size);
    Picture out(size, picture.channels);
    const std::uint8_t fill = nearest ? 40 : 0;
    const Image from = picture.image();
    displace({from.data, from.width, from.height, from.channels, from.row}, {dx.data(), dy.data()},
             nearest ? Interpolation::nearest : Interpolation::bilinear, {fill, fill, fill, fill},
             out.image());
    Difference difference;
    difference.add(out.levels, from_base64(item["image"]));
    EXPECT_LE(difference.most, nearest ? 0 : 1)
        << item["interpolation"] << ", " << item["channels"] << " channels: " << difference.any
        << " of " << difference.all << " levels differ";
  }
}

}  // namespace
}  // namespace millrace::augment
