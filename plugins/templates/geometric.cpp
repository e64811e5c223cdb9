// example_geometric: enlarges a random part of the image to the image's size.
#include <millrace/millrace.hpp>

namespace {

struct ExampleGeometric {
  static constexpr const char* kName = "example_geometric";
  static constexpr const char* kHelp = "zoom into a random part of the image";
  static constexpr millrace::Parameter kParams[] = {
      millrace::number("least", "0.5", 0.05, 1, "smallest part of a side that is shown")};

  explicit ExampleGeometric(const millrace::Values& values) : least(values.number("least")) {}

  millrace::Warp warp(millrace::Size input, millrace::Call& call) const {
    millrace::Warp warp = millrace::Warp::identity(input);
    const double part = call.uniform(least, 1);
    const double left = call.uniform(0, (1 - part) * input.width);
    const double top = call.uniform(0, (1 - part) * input.height);
    call.report("part", part);
    warp.set_map(part, 0, left, 0, part, top);  // maps output positions to input positions
    warp.set_interpolation(millrace::Interpolation::bilinear);
    return warp;
  }

  double least;
};

}  // namespace

MILLRACE_PLUGIN("example_geometric", "0.1", "MIT", ExampleGeometric);
