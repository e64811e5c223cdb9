// Mixes samples of one pixel: with p=1 both samples, and their labels, become the mean.
#include "batch.cpp"

#include <cstdio>

int main() {
  millrace_value p{};
  p.number = 1;
  millrace_create create{};
  create.values = &p;
  create.value_count = 1;
  const ExampleBatch op(millrace::Values(create, ExampleBatch::kParams));

  millrace_sample sample{};
  sample.size = {1, 1};
  sample.channels = 1;
  sample.dtype = MILLRACE_F32;
  sample.classes = 2;
  float first = 1, second = 3;
  float first_labels[] = {1, 0}, second_labels[] = {0, 1};
  millrace_call raw{};
  raw.rng.used = 4;
  millrace::Call call(&raw);
  op.pair({sample, &first, &second, first_labels, second_labels}, call);
  if (first != 2 || second != 2 || first_labels[0] != 0.5f || second_labels[1] != 0.5f) {
    std::printf("1 and 3 became %g and %g\n", static_cast<double>(first),
                static_cast<double>(second));
    return 1;
  }
  return 0;
}
