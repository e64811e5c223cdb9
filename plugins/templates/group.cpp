// example_group: draws four neighbouring samples of a batch, and their labels, together.
#include <millrace/millrace.hpp>

namespace {

struct ExampleGroup {
  static constexpr const char* kName = "example_group";
  static constexpr const char* kHelp = "draw each sample of a group of four towards their mean";
  static constexpr int kGroup = 4;  // samples per call of mix()

  void mix(const millrace::Group& group, millrace::Call& call) const {
    const millrace_sample& s = group.sample;
    if (s.dtype != MILLRACE_F32) throw millrace::BadUse("it mixes f32 alone");
    const auto way = static_cast<float>(call.uniform());
    const auto join = [way](float& a, float& b, float& c, float& d) {
      const float mean = (a + b + c + d) / 4;
      for (float* value : {&a, &b, &c, &d}) *value += way * (mean - *value);
    };
    auto* const* rows = reinterpret_cast<float* const*>(group.samples);
    for (int i = 0; i < s.size.width * s.size.height * s.channels; ++i)
      join(rows[0][i], rows[1][i], rows[2][i], rows[3][i]);
    rows = group.labels;
    for (int i = 0; i < s.classes; ++i) join(rows[0][i], rows[1][i], rows[2][i], rows[3][i]);
  }
};

}  // namespace

MILLRACE_PLUGIN("example_group", "0.1", "MIT", ExampleGroup);
