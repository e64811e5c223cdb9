// example_pixel: darkens the image by a random factor.
#include <millrace/millrace.hpp>

namespace {

struct ExamplePixel {
  static constexpr const char* kName = "example_pixel";
  static constexpr const char* kHelp = "dim the image by a random factor";
  static constexpr millrace::Parameter kParams[] = {
      millrace::number("least", "0.5", 0, 1, "smallest factor")};

  explicit ExamplePixel(const millrace::Values& values) : least(values.number("least")) {}

  void apply(millrace::Image image, millrace::Call& call) const {
    const auto factor = static_cast<int>(256 * call.uniform(least, 1));
    call.report("factor", factor / 256.0);
    for (int y = 0; y < image.height; ++y) {
      std::uint8_t* row = image.data + y * image.row;
      for (int i = 0; i < image.width * image.channels; ++i)
        row[i] = static_cast<std::uint8_t>(row[i] * factor >> 8);
    }
  }

  double least;
};

}  // namespace

MILLRACE_PLUGIN("example_pixel", "0.1", "MIT", ExamplePixel);
