// mosaic (Bochkovskiy, Wang, Liao, "YOLOv4: Optimal Speed and Accuracy of Object Detection", 2020):
// makes a sample of four neighbours of a batch, which meet in a point. As in Ultralytics' mosaic of
// images of the output's size, each touches that point with one of its corners, and shows as much
// as fits between there and the edges. The others are the next three in the group of four, so that
// each image is seen in each corner once.
#include "augment/ops/builtin.h"
#include "augment/ops/pixels.h"

namespace millrace::augment {
namespace {

struct Mosaic {
  static constexpr const char* kName = "mosaic";
  static constexpr const char* kPython = "Mosaic";
  static constexpr const char* kHelp =
      "put four neighbours of a batch together, with their boxes, masks or labels";
  static constexpr int kGroup = 4;
  static constexpr Parameter kParams[] = {
      p_param("1"), numbers("center", "[0.25, 0.75]", lengths(2), 0, 1,
                            "where the four meet, as a fraction of each side: [low, high]")};

  explicit Mosaic(const Values& values) : p(values.number("p")) {
    const Numbers range = values.numbers("center");
    low = range[0];
    high = range[1];
    if (low > high) throw BadUse("center: low is above high", "write [low, high]");
  }

  void parts(const millrace_sample& sample, Parts& parts, Call& call) const {
    const int width = sample.size.width, height = sample.size.height;
    for (int to = 0; to < kGroup; ++to) {
      if (!call.chance(p)) continue;
      const int x = static_cast<int>(call.uniform(low, high) * width);
      const int y = static_cast<int>(call.uniform(low, high) * height);
      call.report(kNames[to][0], x);
      call.report(kNames[to][1], y);
      const auto add = [&](int turn, const Rect& window, int dx, int dy) {
        parts.add({to, (to + turn) % kGroup, window, dx, dy, 1});
      };
      add(0, {0, 0, x, y}, x - width, y - height);
      add(1, {x, 0, width, y}, x, y - height);
      add(2, {0, y, x, height}, x - width, y);
      add(3, {x, y, width, height}, x, y);
    }
  }

  /// Names of where the samples of a group meet.
  static constexpr const char* kNames[kGroup][2] = {
      {"x0", "y0"}, {"x1", "y1"}, {"x2", "y2"}, {"x3", "y3"}};

  double p, low = 0, high = 0;
};

}  // namespace

const Augmentation kMosaic = kAugmentation<Mosaic>;

}  // namespace millrace::augment
