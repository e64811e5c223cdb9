// Mixes samples of one pixel: with p=1 both samples, and their labels, become the mean.
#include "batch.cpp"

#include <cstdio>
#include <millrace/testing.hpp>

int main() {
  millrace::testing::Unit<ExampleBatch> op("p=1");
  millrace::testing::Samples samples{{1, 1}, 1, {1}, {3}, {1, 0}, {0, 1}};
  op.pair(samples);
  if (samples.first[0] != 2 || samples.second[0] != 2 || samples.first_labels[0] != 0.5f ||
      samples.second_labels[1] != 0.5f) {
    std::printf("1 and 3 became %g and %g\n", static_cast<double>(samples.first[0]),
                static_cast<double>(samples.second[0]));
    return 1;
  }
  return 0;
}
