// Compares mosaic with Ultralytics' (tests/golden/make_mosaic.py), through the plan and the loader
// that training uses.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/pipeline/annotated.h"

namespace millrace::pipeline {
namespace {

constexpr std::uint64_t kImages = 4;

/// The four images of make_mosaic.py, whose levels follow from position and number.
class FourImages final : public Reader {
 public:
  FourImages(int side, const nlohmann::json& boxes) {
    info_.reader = "four";
    info_.path = "memory";
    info_.split = "train";
    info_.count = kImages;
    info_.classes.resize(kImages);
    info_.size = {side, side};
    info_.channels = 1;
    annotations_.sizes.assign(kImages, info_.size);
    for (std::uint64_t i = 0; i < kImages; ++i) {
      for (int y = 0; y < side; ++y)
        for (int x = 0; x < side; ++x)
          pixels_[i].push_back(
              static_cast<std::uint8_t>((x * 7 + y * 13 + static_cast<int>(i) * 61) % 251));
      pixels_[i].resize(pixels_[i].size() + kTailSlack);
      for (const auto& box : boxes[i]) {
        annotations_.boxes.push_back({box[0], box[1], box[2], box[3]});
        annotations_.classes.push_back(static_cast<std::int64_t>(i));
      }
      annotations_.ends.push_back(annotations_.boxes.size());
    }
  }
  Sample read(std::uint64_t index, Buffer&) const override {
    return {{pixels_[index].data(), pixels_[index].size() - kTailSlack}, 0};
  }
  std::string name(std::uint64_t index) const override { return "image " + std::to_string(index); }
  const Annotations* annotations() const override { return &annotations_; }

 private:
  Annotations annotations_;
  std::vector<std::uint8_t> pixels_[kImages];
};

std::vector<std::uint8_t> levels_of_hex(const std::string& hex) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

TEST(MosaicGolden, PixelsAndBoxesAreThoseOfUltralytics) {
  const auto all = nlohmann::json::parse(std::ifstream(MILLRACE_GOLDEN "/mosaic.json"));
  const int side = all["side"];
  const auto reader = std::make_shared<FourImages>(side, all["annotations"]);
  std::size_t boxes_compared = 0;
  double largest = 0;
  for (const auto& item : all["cases"]) {
    const std::string at = std::to_string(item["center"].get<double>());
    LoaderOptions options;
    options.workers = 0;
    options.batch = kImages;
    options.shuffle = {Shuffle::Kind::none, 0};
    options.targets.min_area = 0;
    Loader loader(reader, plan_for(*reader, {"mosaic{center=[" + at + "," + at + "]}"}), options);
    const Batch batch = loader.next();
    const auto first = item["first"].get<std::size_t>();
    const auto area = static_cast<std::size_t>(side * side);
    const auto* const pixels = reinterpret_cast<const std::uint8_t*>(batch.data()) + first * area;
    EXPECT_EQ(std::vector<std::uint8_t>(pixels, pixels + area), levels_of_hex(item["image"]));

    const Objects& objects = batch.objects();
    const auto begin = static_cast<std::size_t>(objects.offsets[first]);
    const auto end = static_cast<std::size_t>(objects.offsets[first + 1]);
    ASSERT_EQ(end - begin, item["boxes"].size()) << item["center"] << ", " << first;
    for (std::size_t i = begin; i < end; ++i, ++boxes_compared) {
      const auto& expected = item["boxes"][i - begin];
      EXPECT_EQ(objects.samples[i], expected[0].get<std::int64_t>());
      EXPECT_EQ(objects.origins[i], expected[1].get<std::int64_t>());
      for (std::size_t k = 0; k < 4; ++k)
        largest =
            std::max(largest, std::abs(objects.boxes[4 * i + k] - expected[2 + k].get<double>()));
    }
  }
  EXPECT_GT(boxes_compared, 40u);
  EXPECT_LT(largest, 1e-3) << "pixels";
  RecordProperty("largest_difference_in_pixels", std::to_string(largest));
}

}  // namespace
}  // namespace millrace::pipeline
