// Checks that both children are chosen, about as often as `p` says.
#include "choice.cpp"

#include <cstdio>
#include <millrace/testing.hpp>

int main() {
  millrace::testing::Unit<ExampleChoice> op("p=0.25");
  int flips = 0;
  constexpr int kSamples = 2000;
  for (int sample = 0; sample < kSamples; ++sample) {
    const std::vector<std::string> chosen = op.choose(static_cast<std::uint64_t>(sample));
    if (chosen.size() != 1) return 1;
    flips += chosen[0] == "hflip{p=1}";
  }
  if (flips < 400 || flips > 600) {
    std::printf("%d flips of %d, 500 expected\n", flips, kSamples);
    return 1;
  }
  return 0;
}
