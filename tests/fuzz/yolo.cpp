// Fuzzes YOLO's label files.
#include "pipeline/readers/yolo_labels.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {

Corpus corpus() {
  return {{bytes_of("0 0.5 0.5 0.25 0.25\n2 0.1 0.9 0.3 0.3\r\n\n\t1 1 1 1 1"),
           bytes_of("1 0.1 0.1 0.9 0.1 0.5 0.75\n0 1.009 -0.009 0.5 1e-3")},
          {" ", "\n", "\r\n", "\t", "0", "2", "3", "0.5", "1.0", "-0.001", "1e-300", "1e999", "nan",
           "inf", "0x1p-1", "9223372036854775807", "9223372036854775808", "0 0.5 0.5 0.1 0.1\n",
           " 0.5 0.5"}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  Annotations all;
  fuzz::accepts(Exit::data, [&] {
    pipeline::parse_yolo("x", fuzz::text_of(data, size), 3, all);
    fuzz::require(all.ends == std::vector<std::uint64_t>{all.boxes.size()}, "one image");
    fuzz::require(all.classes.size() == all.boxes.size(), "each box has a class");
    for (std::size_t i = 0; i < all.boxes.size(); ++i) {
      const Box& box = all.boxes[i];
      fuzz::require(box.x0 >= 0 && box.x0 < box.x1 && box.x1 <= 1 && box.y0 >= 0 &&
                        box.y0 < box.y1 && box.y1 <= 1,
                    "boxes have an area inside their image");
      fuzz::require(all.classes[i] >= 0 && all.classes[i] < 3, "classes exist");
    }
  });
  return 0;
}
