// Decodes two pixels, red and white, as RGB and as gray; then checks a truncated file.
#include "decoder.cpp"

#include <cstdio>
#include <millrace/testing.hpp>

int main() {
  const char text[] = "P6\n2 1\n255\n\xff\x00\x00\xff\xff\xff";
  std::vector<std::uint8_t> file(text, text + sizeof text - 1);
  using millrace::testing::decoded;
  using millrace::testing::Picture;
  if (!ExampleDecoder::sniff(file.data(), file.size())) {
    std::puts("the file is not recognised");
    return 1;
  }
  if (!(decoded<ExampleDecoder>(file, 3) == Picture({2, 1}, 3, {255, 0, 0, 255, 255, 255}))) {
    std::puts("wrong pixels");
    return 1;
  }
  if (!(decoded<ExampleDecoder>(file, 1) == Picture({2, 1}, 1, {76, 255}))) {
    std::puts("wrong gray levels");
    return 1;
  }
  file.pop_back();
  try {
    decoded<ExampleDecoder>(file, 3);
  } catch (const millrace::BadData&) {
    return 0;
  }
  std::puts("a file that is cut short was taken");
  return 1;
}
