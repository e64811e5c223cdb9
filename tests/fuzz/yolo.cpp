// Fuzzes YOLO's label files.
#include "pipeline/readers/yolo_labels.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {

Corpus corpus() {
  return {{bytes_of("0 0.5 0.5 0.25 0.25\n2 0.1 0.9 0.3 0.3\r\n\n\t1 1 1 1 1"),
           bytes_of("1 0.1 0.1 0.9 0.1 0.5 0.75\n0 1.009 -0.009 0.5 1e-3"),
           bytes_of("1 0.5 0.5 0.5 0.25 0.1 0.2 2 0 0 0\n0 0.5 0.5 0 0.1 0.5 0.5 1 1 1 2.0\n"),
           bytes_of("1 0.5 0.5 0.5 0.25 0.1 0.2 0.3 0.4\n")},
          {" ", "\n", "\r\n", "\t", "0", "2", "3", "0.5", "1.0", "-0.001", "1e-300", "1e999", "nan",
           "inf", "0x1p-1", "9223372036854775807", "9223372036854775808", "0 0.5 0.5 0.1 0.1\n",
           " 0.5 0.5"}};
}

}  // namespace millrace::fuzz

namespace millrace::fuzz {

/// Parses a label file of objects with `points` key points of `numbers` numbers each.
void parse(std::string_view text, std::size_t points, std::size_t numbers) {
  Annotations all;
  all.points = points;
  accepts(Exit::data, [&] {
    pipeline::parse_yolo("x", text, 3, all, numbers);
    require(all.ends == std::vector<std::uint64_t>{all.boxes.size()}, "one image");
    require(all.classes.size() == all.boxes.size(), "each box has a class");
    require(all.key_points.size() == all.boxes.size() * points, "and its key points");
    for (const KeyPoint& point : all.key_points)
      require(point.x >= 0 && point.x <= 1 && point.y >= 0 && point.y <= 1 &&
                  (point.visibility == 0 || point.visibility == 1 || point.visibility == 2),
              "key points lie inside their image");
    for (std::size_t i = 0; i < all.boxes.size(); ++i) {
      const Box& box = all.boxes[i];
      require(box.x0 >= 0 && box.x0 < box.x1 && box.x1 <= 1 && box.y0 >= 0 && box.y0 < box.y1 &&
                  box.y1 <= 1,
              "boxes have an area inside their image");
      require(all.classes[i] >= 0 && all.classes[i] < 3, "classes exist");
    }
  });
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::parse(text, 0, 3);
  fuzz::parse(text, 2, 3);
  fuzz::parse(text, 2, 2);
  return 0;
}
