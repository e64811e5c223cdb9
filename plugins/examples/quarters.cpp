// quarters: exchanges quarters among four neighbours of a batch, where they are: each sample keeps
// one quarter and gets the other three from the rest of its group. Labels are mixed by area.
#include <cstddef>
#include <millrace/millrace.hpp>

struct Quarters {
  static constexpr const char* kName = "quarters";
  static constexpr const char* kHelp =
      "make each of four neighbours of quarters of all, labels too";
  static constexpr int kGroup = 4;
  static constexpr millrace::Parameter kParams[] = {
      millrace::number("p", "1", 0, 1, "probability, for each group"),
      millrace::number("margin", "0.2", 0, 0.5,
                       "least part of a side between the edge and the point where quarters meet")};

  explicit Quarters(const millrace::Values& values)
      : p(values.number("p")), margin(values.number("margin")) {}

  void mix(const millrace::Group& group, millrace::Call& call) const {
    const millrace_sample& sample = group.sample;
    if (!call.chance(p)) return;
    const int x = static_cast<int>(call.uniform(margin, 1 - margin) * sample.size.width);
    const int y = static_cast<int>(call.uniform(margin, 1 - margin) * sample.size.height);
    call.report("x", x);
    call.report("y", y);
    const int width = sample.size.width, height = sample.size.height;
    const millrace::Rect quarters[4] = {
        {0, 0, x, y}, {x, 0, width, y}, {x, y, width, height}, {0, y, x, height}};
    for (int turn = 1; turn < 4; ++turn) {
      const int size = sample.dtype == MILLRACE_F32 ? 4 : sample.dtype == MILLRACE_U8 ? 1 : 2;
      turn_quarter(group, quarters[turn], turn, size);
    }
    mix_labels(group, quarters);
  }

  /// Gives sample i the pixels that sample (i + turn) % 4 has in `quarter`.
  static void turn_quarter(const millrace::Group& group, const millrace::Rect& quarter, int turn,
                           int element) {
    const millrace_sample& sample = group.sample;
    const bool planar = sample.layout == MILLRACE_CHW;
    const std::ptrdiff_t pixel = planar ? element : element * sample.channels;
    for (int plane = 0; plane < (planar ? sample.channels : 1); ++plane)
      for (int y = quarter.y0; y < quarter.y1; ++y) {
        const std::ptrdiff_t row = std::ptrdiff_t{plane} * sample.size.height + y;
        const std::ptrdiff_t first = (row * sample.size.width + quarter.x0) * pixel;
        const std::ptrdiff_t last = (row * sample.size.width + quarter.x1) * pixel;
        for (std::ptrdiff_t at = first; at < last; ++at) turn_byte(group.samples, at, turn);
      }
  }

  static void turn_byte(void* const* samples, std::ptrdiff_t at, int turn) {
    unsigned char old[4];
    for (int i = 0; i < 4; ++i) old[i] = static_cast<unsigned char*>(samples[i])[at];
    for (int i = 0; i < 4; ++i) static_cast<unsigned char*>(samples[i])[at] = old[(i + turn) % 4];
  }

  static void mix_labels(const millrace::Group& group, const millrace::Rect (&quarters)[4]) {
    const double pixels = static_cast<double>(group.sample.size.width) * group.sample.size.height;
    double part[4];
    for (int turn = 0; turn < 4; ++turn)
      part[turn] = static_cast<double>(quarters[turn].x1 - quarters[turn].x0) *
                   (quarters[turn].y1 - quarters[turn].y0) / pixels;
    for (int label = 0; label < group.sample.classes; ++label) {
      double old[4];
      for (int i = 0; i < 4; ++i) old[i] = static_cast<double>(group.labels[i][label]);
      for (int i = 0; i < 4; ++i) {
        double sum = 0;
        for (int turn = 0; turn < 4; ++turn) sum += part[turn] * old[(i + turn) % 4];
        group.labels[i][label] = static_cast<float>(sum);
      }
    }
  }

  double p, margin;
};
MILLRACE_PLUGIN("quarters", "1.0", "MIT", Quarters);
