// qoi: a decoder of the Quite OK Image format, specification 1.0 (qoiformat.org, 2022).
#include <millrace/millrace.hpp>

namespace {

struct Qoi {
  static constexpr const char* kName = "qoi";
  static constexpr const char* kHelp = "Quite OK Image; transparency is dropped";

  static bool sniff(const std::uint8_t* bytes, std::size_t size) {
    return size >= 4 && std::memcmp(bytes, "qoif", 4) == 0;
  }
  millrace_image_header header(const std::uint8_t* b, std::size_t size) {
    if (size < 14 || !sniff(b, size)) throw millrace::BadData("cut short within the header");
    const auto word = [b](int i) {
      return std::uint32_t{b[i]} << 24 | b[i + 1] << 16 | b[i + 2] << 8 | b[i + 3];
    };
    return {word(4), word(8), 3};
  }

  struct Pixel {
    std::uint8_t r = 0, g = 0, b = 0, a = 0;
  };
  void decode(const std::uint8_t* bytes, std::size_t size, const millrace_decode& request,
              std::uint8_t* pixels, std::size_t row_bytes) {
    Pixel seen[64], now{0, 0, 0, 255};
    std::size_t at = 14, run = 0;
    const auto next = [&]() -> std::uint8_t {
      if (at >= size) throw millrace::BadData("cut short");
      return bytes[at++];
    };
    for (int y = 0; y < request.region.y1; ++y)
      for (int x = 0; x < request.region.x1; ++x) {
        if (run > 0) {
          --run;
        } else if (const std::uint8_t tag = next(); tag == 0xFE || tag == 0xFF) {  // RGB, RGBA
          now = {next(), next(), next(), tag == 0xFF ? next() : now.a};
        } else if (tag >> 6 == 0) {  // a pixel seen before
          now = seen[tag];
        } else if (tag >> 6 == 3) {  // repeats the last pixel
          run = tag & 63;
        } else {  // small differences
          const int luma = tag >> 6 == 2 ? next() : 0;
          const int green = tag >> 6 == 2 ? (tag & 63) - 32 : (tag >> 2 & 3) - 2;
          now.r += tag >> 6 == 2 ? green - 8 + (luma >> 4) : (tag >> 4 & 3) - 2;
          now.b += tag >> 6 == 2 ? green - 8 + (luma & 15) : (tag & 3) - 2;
          now.g += green;
        }
        seen[(now.r * 3 + now.g * 5 + now.b * 7 + now.a * 11) % 64] = now;
        std::uint8_t* out = pixels + y * row_bytes + x * request.channels;
        out[0] =
            request.channels == 3 ? now.r : (299 * now.r + 587 * now.g + 114 * now.b + 500) / 1000;
        if (request.channels == 3) out[1] = now.g, out[2] = now.b;
      }
  }
};

}  // namespace

MILLRACE_PLUGIN("qoi", "1.0", "MIT", Qoi);
