// Mixes five samples of one pixel: four are drawn together, and the fifth, too few, stays.
#include "group.cpp"

#include <cstdio>
#include <millrace/testing.hpp>

int main() {
  millrace::testing::Unit<ExampleGroup> op;
  millrace::testing::BatchSamples batch{
      {1, 1}, 1, {{0}, {4}, {8}, {12}, {5}}, {{1, 0}, {1, 0}, {0, 1}, {0, 1}, {1, 0}}};
  op.mix(batch);
  const auto& out = batch.samples;
  if (!(out[0][0] > 0 && out[0][0] < 6 && out[3][0] < 12 && out[3][0] > 6) || out[4][0] != 5 ||
      batch.labels[0][0] + batch.labels[0][1] != 1 || batch.labels[4][0] != 1) {
    std::printf("0, 12 and 5 became %g, %g and %g\n", static_cast<double>(out[0][0]),
                static_cast<double>(out[3][0]), static_cast<double>(out[4][0]));
    return 1;
  }
  return 0;
}
