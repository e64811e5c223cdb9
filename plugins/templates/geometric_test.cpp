// Checks that the warp stays inside the image; needs no pixels.
#include "geometric.cpp"

#include <cstdio>

int main() {
  millrace_value least{};
  least.number = 0.5;
  millrace_create create{};
  create.values = &least;
  create.value_count = 1;
  const ExampleGeometric op(millrace::Values(create, ExampleGeometric::kParams));

  const millrace::Size size{40, 30};
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    millrace_call raw{};
    raw.rng = {{seed, 0}, {}, {}, 4};
    millrace::Call call(&raw);
    const millrace::Warp warp = op.warp(size, call);
    const double right = warp.map[0] * size.width + warp.map[2];
    const double bottom = warp.map[4] * size.height + warp.map[5];
    if (warp.map[0] < 0.5 || warp.map[2] < 0 || warp.map[5] < 0 || right > size.width ||
        bottom > size.height) {
      std::printf("seed %u: the part leaves the image\n", seed);
      return 1;
    }
  }
  return 0;
}
