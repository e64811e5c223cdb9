// Checks an image of two pixels: levels sink, and never below what `least` allows.
#include "pixel.cpp"

#include <cstdio>

int main() {
  millrace_value least{};
  least.number = 0.5;
  millrace_create create{};
  create.values = &least;
  create.value_count = 1;
  const ExamplePixel op(millrace::Values(create, ExamplePixel::kParams));

  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    millrace_call raw{};
    raw.rng = {{seed, 0}, {}, {}, 4};
    millrace::Call call(&raw);
    std::uint8_t levels[] = {200, 0};
    op.apply({levels, 2, 1, 1, 2}, call);
    if (levels[0] < 100 || levels[0] > 200 || levels[1] != 0) {
      std::printf("seed %u: 200 became %d, 0 became %d\n", seed, levels[0], levels[1]);
      return 1;
    }
  }
  return 0;
}
