// Filters one row: an edge becomes a slope, and the end pixels are repeated outside.
#include "filter.cpp"

#include <cstdio>

int main() {
  const std::uint8_t in[] = {0, 0, 90, 90};
  const std::uint8_t expected[] = {0, 30, 60, 90};
  std::uint8_t out[4] = {};
  ExampleFilter().apply({in, 4, 1, 1, 4}, {out, 4, 1, 1, 4});
  for (int x = 0; x < 4; ++x) {
    if (out[x] == expected[x]) continue;
    std::printf("pixel %d: %d instead of %d\n", x, out[x], expected[x]);
    return 1;
  }
  return 0;
}
