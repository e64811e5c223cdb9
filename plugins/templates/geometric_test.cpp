// Checks that the warp stays inside the image; needs no pixels.
#include "geometric.cpp"

#include <cstdio>
#include <millrace/testing.hpp>

int main() {
  millrace::testing::Unit<ExampleGeometric> op("least=0.5");
  const millrace::Size size{40, 30};
  for (std::uint64_t sample = 0; sample < 100; ++sample) {
    const millrace::Warp warp = op.warp(size, sample);
    const double right = warp.map[0] * size.width + warp.map[2];
    const double bottom = warp.map[4] * size.height + warp.map[5];
    if (warp.map[0] < 0.5 || warp.map[2] < 0 || warp.map[5] < 0 || right > size.width ||
        bottom > size.height) {
      std::printf("sample %d: a part of %g leaves the image\n", static_cast<int>(sample),
                  op.drawn("part"));
      return 1;
    }
  }
  return 0;
}
