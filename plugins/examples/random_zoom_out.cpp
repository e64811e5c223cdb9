// random_zoom_out: shows the whole image, scaled down, at a random position on a canvas of the
// image's size.
#include <millrace/millrace.hpp>

struct RandomZoomOut {
  static constexpr const char* kName = "random_zoom_out";
  static constexpr const char* kHelp = "shrink the image on a canvas of its size";
  static constexpr millrace::Parameter kParams[] = {
      millrace::number("most", "2", 1, 8, "largest factor by which the sides shrink"),
      millrace::fill_param()};

  explicit RandomZoomOut(const millrace::Values& values) : most(values.number("most")) {
    values.fill(fill);
  }
  millrace::Warp warp(millrace::Size input, millrace::Call& call) const {
    millrace::Warp warp = millrace::Warp::identity(input);
    const double factor = call.uniform(1, most);  // the canvas covers `factor` images per side
    const double left = call.uniform(0, input.width * (factor - 1));
    const double top = call.uniform(0, input.height * (factor - 1));
    call.report("factor", factor);
    warp.set_map(factor, 0, -left, 0, factor, -top);
    warp.set_interpolation(millrace::Interpolation::bilinear);
    std::memcpy(warp.fill, fill, sizeof fill);
    return warp;
  }
  double most;
  std::uint8_t fill[4];
};
MILLRACE_PLUGIN("random_zoom_out", "1.0", "MIT", RandomZoomOut);
