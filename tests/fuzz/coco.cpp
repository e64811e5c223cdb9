// Fuzzes COCO's annotation files.
#include "pipeline/readers/coco_json.h"
#include "pipeline/targets/outline.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {

Corpus corpus() {
  return {{bytes_of(R"({"images": [{"id": 1, "file_name": "a.jpg", "width": 6, "height": 4}],)"
                    R"("annotations": [{"image_id": 1, "category_id": 2, "bbox": [0, 0, 6, 4],)"
                    R"("segmentation": [[1, 1, 4, 1, 4, 3], [0, -1, 2e3, 0.5, 0, 4]]},)"
                    R"({"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 1],)"
                    R"("segmentation": {"size": [4, 6], "counts": [1, 2, 2, 2, 17]}},)"
                    R"({"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 1],)"
                    R"("segmentation": {"size": [4, 6], "counts": "1220?"}}],)"
                    R"("categories": [{"id": 2, "name": "cat"}]})"),
           bytes_of(R"({"images": [{"id": 1, "file_name": "a.jpg", "width": 64, "height": 48}],)"
                    R"("annotations": [{"image_id": 1, "category_id": 2, "bbox": [1, 2, 30.5, 4]},)"
                    R"({"image_id": 1, "category_id": 2, "bbox": [60, 40, 9, 9], "iscrowd": 1}],)"
                    R"("categories": [{"id": 2, "name": "cat"}]})"),
           bytes_of(R"({"categories": [{"id": -7, "name": "\u00e9"}], "info": [[{}]],)"
                    R"("annotations": [{"image_id": 0, "category_id": -7, "bbox": [0, 0, 1, 1],)"
                    R"("keypoints": [1, 2, 2, 0, 0, 0], "segmentation": [[1, 2]]}],)"
                    R"("images": [{"width": 1, "height": 1, "id": 0, "file_name": "b"}]})")},
          {"\"images\": [",
           "\"annotations\": [",
           "\"categories\": [",
           "\"bbox\": ",
           "\"id\": ",
           "\"keypoints\": ",
           "\"iscrowd\": 1",
           "null",
           "1e38",
           "-1",
           "1e999",
           "9223372036854775807",
           "18446744073709551616",
           "{}",
           "[]",
           "}, {",
           "\\u0000",
           std::string(200, '['),
           "\"segmentation\": ",
           "\"counts\": \"1220?\"",
           "\"size\": [4, 6]",
           "[[1, 1, 4, 1, 4, 3]]"}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  fuzz::accepts(Exit::data, [&] {
    const pipeline::CocoSet set = pipeline::parse_coco("x", fuzz::text_of(data, size));
    const Annotations& all = set.annotations;
    fuzz::require(all.ends.size() == set.files.size(), "each image has its objects");
    fuzz::require(all.classes.size() == all.boxes.size(), "each box has a class");
    fuzz::require(all.key_points.size() == all.points * all.boxes.size(), "key points fit");
    for (std::uint64_t image = 0; image < all.ends.size(); ++image)
      for (std::size_t i = all.begin(image); i < all.ends[image]; ++i) {
        const Box& box = all.boxes[i];
        fuzz::require(box.x0 >= 0 && box.x0 < box.x1 && box.x1 <= all.sizes[image].width &&
                          box.y0 >= 0 && box.y0 < box.y1 && box.y1 <= all.sizes[image].height,
                      "boxes have an area inside their image");
        fuzz::require(all.classes[i] >= 0 && all.classes[i] < std::ssize(set.classes),
                      "classes exist");
      }
  });
  fuzz::accepts(Exit::data, [&] {
    const pipeline::CocoSet set = pipeline::parse_coco("x", fuzz::text_of(data, size), true);
    const Annotations& all = set.annotations;
    fuzz::require(all.outlines.ends.size() == all.boxes.size(), "each object has an outline");
    constexpr std::uint64_t kPixelLimit = 4096;
    fuzz::Bytes pixels(kPixelLimit);
    for (std::uint64_t image = 0; image < all.ends.size(); ++image) {
      const Size sides = all.sizes[image];
      const auto area =
          static_cast<std::uint64_t>(sides.width) * static_cast<std::uint64_t>(sides.height);
      for (std::size_t i = all.begin(image); i < all.ends[image] && area <= kPixelLimit; ++i) {
        const Rect inside = pipeline::fill_outline(all.outlines, i, sides, pixels.data());
        for (std::uint64_t at = 0; at < area; ++at) fuzz::require(pixels[at] <= 1, "0 or 1");
        pipeline::clear_pixels(inside, sides, pixels.data());
        for (std::uint64_t at = 0; at < area; ++at)
          fuzz::require(pixels[at] == 0, "an object lies in its rectangle");
      }
    }
  });
  return 0;
}
