// Compares moved masks with torchvision.transforms.v2 (tests/golden/make_masks.py), through the
// plan and the loader that training uses.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "augment/ops/geometry.h"
#include "tests/pipeline/annotated.h"
#include "tests/pipeline/masked.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;

constexpr std::uint8_t kFill = 255;

Bytes bytes_of_hex(const std::string& hex) {
  Bytes out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

/// Counts the pixels that differ, each of which must be found beside its place in `expected`.
std::size_t differing(const Bytes& mask, const Bytes& expected, Size size,
                      const std::string& what) {
  EXPECT_EQ(mask.size(), expected.size()) << what;
  std::size_t count = 0;
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x) {
      const std::uint8_t level = mask[static_cast<std::size_t>(y * size.width + x)];
      if (level == expected[static_cast<std::size_t>(y * size.width + x)]) continue;
      bool beside = false;
      for (int v = std::max(0, y - 1); v <= std::min(size.height - 1, y + 1); ++v)
        for (int u = std::max(0, x - 1); u <= std::min(size.width - 1, x + 1); ++u)
          beside |= expected[static_cast<std::size_t>(v * size.width + u)] == level;
      EXPECT_TRUE(beside) << what << ", pixel " << x << ", " << y;
      ++count;
    }
  return count;
}

struct Golden {
  nlohmann::json all = nlohmann::json::parse(std::ifstream(MILLRACE_GOLDEN "/masks.json"));
  Size size{all["width"], all["height"]};
  Bytes mask = bytes_of_hex(all["mask"]);
};

TEST(MasksGolden, ClassIdsAreTorchvisions) {
  const Golden golden;
  const auto reader = std::make_shared<Masked>(golden.size, std::vector<Bytes>{golden.mask});
  std::size_t shifted = 0;
  for (const auto& item : golden.all["cases"]) {
    LoaderOptions options;
    options.workers = 0;
    options.batch = 1;
    const std::string chain = item["chain"].dump();
    Loader loader(reader, plan_for(*reader, item["chain"]), options);
    const Size output = loader.output().size;
    ASSERT_EQ(output, (Size{item["output"][1], item["output"][0]})) << chain;
    const Batch batch = loader.next();
    const Bytes mask(batch.masks().begin(), batch.masks().end());
    // Torchvision takes the pixel left and above when it resizes a mask, half a pixel from the one
    // whose level the image has.
    const bool has_centres = !item["centres"].is_null();
    EXPECT_EQ(mask, bytes_of_hex(item[has_centres ? "centres" : "mask"])) << chain;
    shifted += has_centres && mask != bytes_of_hex(item["mask"]);
  }
  EXPECT_GE(shifted, 3u);
}

TEST(MasksGolden, PerspectivesAreTorchvisionsButForRounding) {
  const Golden golden;
  const Masked reader(golden.size, {golden.mask});
  const auto plan = plan_for(reader, {});
  const auto scratch = plan->make_scratch();
  for (const auto& item : golden.all["perspectives"]) {
    augment::Corners from, to;
    for (std::size_t i = 0; i < 4; ++i) {
      from[i] = {item["from"][i][0], item["from"][i][1]};
      to[i] = {item["to"][i][0], item["to"][i][1]};
    }
    const auto map = augment::perspective_map(from, to);
    Warp warp = Warp::identity(golden.size);
    std::copy(map.begin(), map.end(), warp.map);
    warp.set_interpolation(Interpolation::bilinear);
    WholeImage source(interleaved(golden.mask.data(), golden.size, 1));
    Bytes mask(golden.mask.size());
    plan->move_mask({{warp}}, source, kFill, mask.data(), *scratch);
    const Bytes expected = bytes_of_hex(item["mask"]);
    // torchvision solves for the map in single precision.
    EXPECT_LE(differing(mask, expected, golden.size, item["to"].dump()), 1u);
    EXPECT_GT(std::count(mask.begin(), mask.end(), kFill), 100);
  }
}

}  // namespace
}  // namespace millrace::pipeline
