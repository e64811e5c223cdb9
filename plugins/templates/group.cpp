// example_group: draws four neighbouring samples of a batch, and their labels, together.
#include <millrace/millrace.hpp>

namespace {

struct ExampleGroup {
  static constexpr const char* kName = "example_group";
  static constexpr const char* kHelp = "draw each sample of a group of four towards their mean";
  static constexpr int kGroup = 4;  // samples per call of mix()
  static constexpr millrace::Parameter kParams[] = {
      millrace::number("part", "0.5", 0, 1, "largest part of the way, drawn for each group")};

  explicit ExampleGroup(const millrace::Values& values) : part(values.number("part")) {}

  void mix(const millrace::Group& group, millrace::Call& call) const {
    const millrace_sample& sample = group.sample;
    if (sample.dtype != MILLRACE_F32) throw millrace::BadUse("it mixes f32 alone");
    const auto way = static_cast<float>(call.uniform(0, part));
    const int elements = sample.size.width * sample.size.height * sample.channels;
    draw_together(reinterpret_cast<float* const*>(group.samples), elements, way);
    draw_together(group.labels, sample.classes, way);
  }

  static void draw_together(float* const* rows, int count, float way) {
    for (int i = 0; i < count; ++i) {
      const float mean = (rows[0][i] + rows[1][i] + rows[2][i] + rows[3][i]) / 4;
      for (int row = 0; row < kGroup; ++row) rows[row][i] += way * (mean - rows[row][i]);
    }
  }
  double part;
};

}  // namespace

MILLRACE_PLUGIN("example_group", "0.1", "MIT", ExampleGroup);
