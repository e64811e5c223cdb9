// A record of one sample's way through a plan, for `inspect`; not used in training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::augment {

struct Trace {
  /// A value that an op drew.
  struct Drawn {
    std::string op;
    std::string name;
    double value;
  };
  /// One traversal of pixels.
  struct Step {
    std::string what;              ///< "decode", "pass", "levels", an op's name
    std::vector<std::string> ops;  ///< ops folded into it
    std::string detail;            ///< "224x224, reduced by 1.62 x 1.49"
    std::int64_t ns = 0;           ///< its duration
  };

  std::vector<Drawn> drawn;
  std::vector<Step> steps;
};

}  // namespace millrace::augment
