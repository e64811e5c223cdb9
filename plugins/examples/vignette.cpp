// vignette: darkens the image towards its corners, as a lens does.
#include <millrace/millrace.hpp>

struct Vignette {
  static constexpr const char* kName = "vignette";
  static constexpr const char* kHelp = "darken towards the corners by a random strength";
  static constexpr millrace::Parameter kParams[] = {
      millrace::number("most", "0.6", 0, 1, "largest part of the light that a corner loses")};

  explicit Vignette(const millrace::Values& values) : most(values.number("most")) {}

  void apply(millrace::Image image, millrace::Call& call) const {
    const double strength = call.uniform(0, most);
    call.report("strength", strength);
    const double w = image.width, h = image.height;
    for (int y = 0; y < image.height; ++y)
      for (int x = 0; x < image.width; ++x) {
        const double dx = (2 * x + 1 - w) / w, dy = (2 * y + 1 - h) / h;  // -1 .. 1
        const double light = 1 - strength * (dx * dx + dy * dy) / 2;
        std::uint8_t* pixel = image.data + y * image.row + x * image.channels;
        for (int c = 0; c < image.channels; ++c)
          pixel[c] = static_cast<std::uint8_t>(millrace::round_half_even(pixel[c] * light));
      }
  }
  double most;
};
MILLRACE_PLUGIN("vignette", "1.0", "MIT", Vignette);
