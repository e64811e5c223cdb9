// Declares the recipe keys of the compiled chain.
#include "augment/plan/plan_keys.h"

#include <limits>

namespace millrace::augment {

std::vector<Param> plan_keys() {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  return {
      Param::choice("resample", "once", {"once", "stepwise"},
                    "once: resample once for consecutive geometric ops; stepwise: once per op"),
      Param::choice("output.dtype", "f32", {"f32", "u8", "f16", "bf16"}, "element type of a batch"),
      Param::choice("output.layout", "chw", {"chw", "hwc"}, "dimension order of a sample"),
      Param::numbers("output.mean", {0.0}, {}, -kAny, kAny,
                     "one number or one per channel, on the scale 0..1; f32 only"),
      Param::numbers("output.std", {1.0}, {}, 1e-12, kAny,
                     "one number or one per channel, on the scale 0..1; f32 only"),
      Param::whole_numbers("output.sizes", {}, {}, 1, 65535,
                           "progressive resizing: sides of the samples, one after the other, as "
                           "`size` of the last op that has one"),
      Param::whole_numbers("output.milestones", {}, {}, 1, 1e9,
                           "epochs, counted from 0, at which output.sizes goes on"),
      Param::choice(
          "output.normalize", "loader", {"loader", "device"},
          "where to normalise; device: batches are copied as u8 and converted to f32 there"),
  };
}

}  // namespace millrace::augment
