// Checks that both children are chosen, about as often as `p` says.
#include "choice.cpp"

#include <cstdio>

int main() {
  millrace_value p{};
  p.number = 0.25;
  millrace_create create{};
  create.values = &p;
  create.value_count = 1;
  create.child = [](const millrace_create*, const char* unit) -> std::int32_t {
    return unit[0] == 'h' ? 0 : 1;  // stands for the host
  };
  millrace::Children children(create);
  const ExampleChoice op(millrace::Values(create, ExampleChoice::kParams), children);

  int flips = 0;
  constexpr std::uint32_t kSamples = 2000;
  for (std::uint32_t sample = 0; sample < kSamples; ++sample) {
    millrace_call raw{};
    raw.rng = {{1, 0}, {sample, 0, 0, 0}, {}, 4};
    millrace::Call call(&raw);
    std::uint32_t places[MILLRACE_MOST_CHOSEN];
    millrace::Chosen chosen(places);
    op.choose(chosen, call);
    if (chosen.count() != 1) return 1;
    flips += places[0] == op.flip;
  }
  if (flips < 400 || flips > 600) {
    std::printf("%d flips of %u, 500 expected\n", flips, kSamples);
    return 1;
  }
  return 0;
}
