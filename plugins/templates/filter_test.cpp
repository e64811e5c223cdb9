// Filters one row: an edge becomes a slope, and the end pixels are repeated outside.
#include "filter.cpp"

#include <cstdio>
#include <millrace/testing.hpp>

int main() {
  millrace::testing::Unit<ExampleFilter> op;
  const auto out = op.apply({{4, 1}, 1, {0, 0, 90, 90}});
  const std::uint8_t expected[] = {0, 30, 60, 90};
  for (int x = 0; x < 4; ++x) {
    if (out.at(x, 0) == expected[x]) continue;
    std::printf("pixel %d: %d instead of %d\n", x, out.at(x, 0), expected[x]);
    return 1;
  }
  return 0;
}
