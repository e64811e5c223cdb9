// example_decoder: decodes binary PGM and PPM (netpbm's P5 and P6) with 8 bits per level.
#include <cstring>
#include <millrace/millrace.hpp>

namespace {

class ExampleDecoder {
 public:
  static constexpr const char* kName = "example_decoder";
  static constexpr const char* kHelp = "PGM and PPM, binary, 8 bits";

  static bool sniff(const std::uint8_t* bytes, std::size_t size) {
    return size >= 3 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6') && bytes[2] <= ' ';
  }

  millrace_image_header header(const std::uint8_t* bytes, std::size_t size) {
    at_ = 2;
    const std::uint32_t width = number(bytes, size);
    const std::uint32_t height = number(bytes, size);
    if (number(bytes, size) != 255) throw millrace::BadData("levels beyond 8 bits");
    ++at_;  // one white space, then the pixels
    channels_ = sniff(bytes, size) && bytes[1] == '6' ? 3 : 1;
    return {width, height, channels_};
  }

  void decode(const std::uint8_t* bytes, std::size_t size, const millrace_decode& request,
              std::uint8_t* pixels, std::size_t row_bytes) {
    const auto width = static_cast<std::size_t>(request.region.x1);
    const auto height = static_cast<std::size_t>(request.region.y1);
    if (at_ > size || size - at_ < width * height * channels_) throw millrace::BadData("cut short");
    for (std::size_t y = 0; y < height; ++y)
      for (std::size_t x = 0; x < width; ++x) {
        const std::uint8_t* in = bytes + at_ + (y * width + x) * channels_;
        std::uint8_t* out = pixels + y * row_bytes + x * request.channels;
        if (request.channels == 3)
          for (std::size_t c = 0; c < 3; ++c) out[c] = in[channels_ == 3 ? c : 0];
        else  // ITU-R BT.601
          *out = channels_ == 1 ? *in
                                : static_cast<std::uint8_t>(
                                      (299 * in[0] + 587 * in[1] + 114 * in[2] + 500) / 1000);
      }
  }

 private:
  std::uint32_t number(const std::uint8_t* bytes, std::size_t size) {
    while (at_ < size && bytes[at_] <= ' ') ++at_;
    std::uint32_t value = 0;
    for (; at_ < size && bytes[at_] >= '0' && bytes[at_] <= '9' && value < 100'000; ++at_)
      value = value * 10 + (bytes[at_] - '0');
    return value;
  }
  std::size_t at_ = 0;
  std::uint32_t channels_ = 1;
};

}  // namespace

MILLRACE_PLUGIN("example_decoder", "0.1", "MIT", ExampleDecoder);
