// Checks an image of two pixels: levels sink, and never below what `least` allows.
#include "pixel.cpp"

#include <cstdio>
#include <millrace/testing.hpp>

int main() {
  millrace::testing::Unit<ExamplePixel> op("least=0.5");
  for (std::uint64_t sample = 0; sample < 100; ++sample) {
    const auto out = op.apply({{2, 1}, 1, {200, 0}}, sample);
    if (out.at(0, 0) < 100 || out.at(0, 0) > 200 || out.at(1, 0) != 0) {
      std::printf("factor %g: 200 became %d, 0 became %d\n", op.drawn("factor"), out.at(0, 0),
                  out.at(1, 0));
      return 1;
    }
  }
  return 0;
}
