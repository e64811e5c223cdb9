// Compares moved boxes and key points with torchvision.transforms.v2 (tests/golden/make_boxes.py),
// through the plan and the loader that training uses.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/pipeline/annotated.h"

namespace millrace::pipeline {
namespace {

TEST(BoxesGolden, PositionsAreTorchvisionsWithinAThousandthOfAPixel) {
  const auto golden = nlohmann::json::parse(std::ifstream(MILLRACE_GOLDEN "/boxes.json"));
  Annotations annotations;
  for (const auto& box : golden["boxes"])
    annotations.boxes.push_back({box[0], box[1], box[2], box[3]});
  const std::size_t count = annotations.boxes.size();
  annotations.classes.resize(count);
  annotations.ends = {count};
  annotations.points = 1;
  for (const auto& point : golden["points"])
    annotations.key_points.push_back({point[0], point[1], 2});
  ASSERT_EQ(annotations.key_points.size(), count);
  const auto reader =
      std::make_shared<Annotated>(Size{golden["width"], golden["height"]}, annotations);

  std::size_t compared = 0, points = 0;
  for (const auto& item : golden["cases"]) {
    LoaderOptions options;
    options.workers = 0;
    options.batch = 1;
    options.targets.min_area = 0;
    const std::string chain = item["chain"].dump();
    Loader loader(reader, plan_for(*reader, item["chain"]), options);
    ASSERT_EQ(loader.output().size, (Size{item["output"][1], item["output"][0]})) << chain;
    const Batch batch = loader.next();
    const Objects& objects = batch.objects();
    std::size_t next = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto expected = item["boxes"][i].get<std::vector<double>>();
      const double width = expected[2] - expected[0], height = expected[3] - expected[1];
      const bool found =
          next < objects.origins.size() && objects.origins[next] == static_cast<std::int64_t>(i);
      // One that is cut off, but for rounding, may be left out.
      EXPECT_TRUE(found || std::min(width, height) <= 1e-3) << chain << ", box " << i;
      if (!found) continue;
      for (std::size_t k = 0; k < 4; ++k)
        EXPECT_NEAR(objects.boxes[4 * next + k], expected[k], 1e-3) << chain << ", box " << i;
      ++compared;
      const float* const point = objects.key_points.data() + 3 * next++;
      if (point[2] == 0) continue;
      for (std::size_t k = 0; k < 2; ++k)
        EXPECT_NEAR(point[k], item["points"][i][k].get<double>(), 1e-3) << chain << ", point " << i;
      ++points;
    }
    EXPECT_EQ(next, objects.origins.size()) << chain;
  }
  EXPECT_GT(compared, 50u);
  EXPECT_GT(points, 40u);
}

}  // namespace
}  // namespace millrace::pipeline
