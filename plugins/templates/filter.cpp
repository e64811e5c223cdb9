// example_filter: averages each pixel with its two neighbours in the row.
#include <millrace/millrace.hpp>

namespace {

struct ExampleFilter {
  static constexpr const char* kName = "example_filter";
  static constexpr const char* kHelp = "smooth along the rows";

  void apply(millrace::ConstImage from, millrace::Image to) const {
    for (int y = 0; y < from.height; ++y) {
      const std::uint8_t* in = from.data + y * from.row;
      std::uint8_t* out = to.data + y * to.row;
      for (int x = 0; x < from.width; ++x) {
        const int left = (x > 0 ? x - 1 : 0) * from.channels;
        const int here = x * from.channels;
        const int right = (x + 1 < from.width ? x + 1 : x) * from.channels;
        for (int c = 0; c < from.channels; ++c)
          out[here + c] =
              static_cast<std::uint8_t>((in[left + c] + in[here + c] + in[right + c] + 1) / 3);
      }
    }
  }
};

}  // namespace

MILLRACE_PLUGIN("example_filter", "0.1", "MIT", ExampleFilter);
