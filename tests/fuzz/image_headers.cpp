// Fuzzes the headers that the plugin imgcodecs parses itself: PNG, BMP, WebP, TIFF. The
// pixels behind them are fuzzed by codec.cpp, but for BMP's, which are OpenCV's.
#include "plugins/imgcodecs/headers.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {

Corpus corpus() {
  const auto raw = [](std::string_view text) { return bytes_of(text); };
  using namespace std::string_view_literals;
  return {
      {raw("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x10\0\0\0\x08\x08\x02\0\0\0\0\0\0\0\0\0\0\0IDAT\0\0\0\0"sv),
       raw("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x10\0\0\0\x08\x08\x03\0\0\0\0\0\0\0\0\0\0\x1a"
           "eXIfII*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0\0\0\0\0"sv),
       raw("BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x10\0\0\0\x08\0\0\0\x01\0\x18\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"sv),
       raw("RIFF\x40\0\0\0WEBPVP8 \x20\0\0\0\x10\x02\0\x9d\x01\x2a\x10\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0"sv),
       raw("RIFF\x40\0\0\0WEBPVP8L\x20\0\0\0\x2f\x0f\xc0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"sv),
       raw("RIFF\x40\0\0\0WEBPVP8X\x0a\0\0\0\x08\0\0\0\x0f\0\0\x07\0\0EXIF\x1a\0\0\0II*"
           "\0\x08\0\0\0\x01\0"
           "\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"sv),
       raw("II*\0\x08\0\0\0\x03\0\0\x01\x03\0\x01\0\0\0\x10\0\0\0\x01\x01\x03\0\x01\0\0\0\x08\0\0\0"
           "\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"sv),
       raw("MM\0*\0\0\0\x08\0\x02\x01\0\0\x04\0\0\0\x01\0\0\0\x10\x01\x01\0\x04\0\0\0\x01\0\0\0\x08\0\0\0\0"sv)},
      {"IHDR", "eXIf", "IDAT", "EXIF", "VP8 ", "VP8L", "VP8X", "RIFF", "WEBP", "BM", "II*", "MM"}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace imgcodecs;
  for (const ReadHeader read : {&png_header, &bmp_header, &webp_header, &tiff_header}) {
    Header header{};
    if (read(data, size, header) == nullptr)
      millrace::fuzz::require(header.image.orientation <= 8, "an orientation is 0 to 8");
  }
  return 0;
}
