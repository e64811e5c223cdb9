// hflip: mirrors left and right with probability p (torchvision's RandomHorizontalFlip).
#include "augment/op.h"

namespace millrace {
namespace {

class Hflip final : public GeometricOp {
 public:
  explicit Hflip(const Params& params) : p_(params.number("p")) {}
  Size output(Size input) const override { return input; }
  Warp plan(Size input, Draw& draw) const override {
    Warp warp = Warp::identity(input);
    if (draw.chance(p_)) {
      warp.map[0] = -1;
      warp.map[2] = input.width;
    }
    return warp;
  }

 private:
  double p_;
};

}  // namespace

extern const OpType kHflip;
const OpType kHflip{{"hflip",
                     "mirror left and right with probability p",
                     true,
                     {Param::number("p", 0.5, 0, 1, "probability")}},
                    [](const Params& params) -> std::unique_ptr<GeometricOp> {
                      return std::make_unique<Hflip>(params);
                    }};

}  // namespace millrace
