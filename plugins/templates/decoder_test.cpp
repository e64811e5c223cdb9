// Decodes two pixels, red and white, as RGB and as gray; then checks a truncated file.
#include "decoder.cpp"

#include <cstdio>

int main() {
  const std::uint8_t file[] = "P6\n2 1\n255\n\xff\x00\x00\xff\xff\xff";
  const std::size_t size = sizeof file - 1;
  ExampleDecoder decoder;
  const millrace_image_header header = decoder.header(file, size);
  if (!ExampleDecoder::sniff(file, size) || header.width != 2 || header.height != 1 ||
      header.channels != 3) {
    std::puts("wrong header");
    return 1;
  }
  std::uint8_t pixels[6];
  decoder.decode(file, size, {sizeof(millrace_decode), 3, 0, {0, 0, 2, 1}}, pixels, 6);
  if (std::memcmp(pixels, "\xff\x00\x00\xff\xff\xff", 6) != 0) {
    std::puts("wrong pixels");
    return 1;
  }
  decoder.decode(file, size, {sizeof(millrace_decode), 1, 0, {0, 0, 2, 1}}, pixels, 2);
  if (pixels[0] != 76 || pixels[1] != 255) {
    std::puts("wrong gray levels");
    return 1;
  }
  try {
    decoder.header(file, size);
    decoder.decode(file, size - 1, {sizeof(millrace_decode), 3, 0, {0, 0, 2, 1}}, pixels, 6);
  } catch (const millrace::BadData&) {
    return 0;
  }
  std::puts("a file that is cut short was taken");
  return 1;
}
