// example_batch: replaces both samples of a pair, and their labels, by their mean.
#include <millrace/millrace.hpp>

namespace {

struct ExampleBatch {
  static constexpr const char* kName = "example_batch";
  static constexpr const char* kHelp = "halve the difference of neighbours with probability p";
  static constexpr millrace::Parameter kParams[] = {
      millrace::number("p", "0.5", 0, 1, "probability, for each pair")};

  explicit ExampleBatch(const millrace::Values& values) : p(values.number("p")) {}

  void pair(const millrace::Pair& pair, millrace::Call& call) const {
    const millrace_sample& sample = pair.sample;
    if (sample.dtype != MILLRACE_F32) throw millrace::BadUse("it mixes f32 alone");
    if (!call.chance(p)) return;
    const auto mix = [](float* a, float* b, int count) {
      for (int i = 0; i < count; ++i) a[i] = b[i] = (a[i] + b[i]) / 2;
    };
    mix(static_cast<float*>(pair.first), static_cast<float*>(pair.second),
        sample.size.width * sample.size.height * sample.channels);
    mix(pair.first_labels, pair.second_labels, sample.classes);
  }
  double p;
};

}  // namespace

MILLRACE_PLUGIN("example_batch", "0.1", "MIT", ExampleBatch);
