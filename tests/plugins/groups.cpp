// Batch units that declare groups: compiled once for each of the names below, which the build sets.
#include <cstddef>
#include <millrace/millrace.hpp>

namespace {

/// Writes the mean of two values to both.
[[maybe_unused]] void halve(float* a, float* b, int count) {
  for (int i = 0; i < count; ++i) a[i] = b[i] = (a[i] + b[i]) / 2;
}
[[maybe_unused]] int elements_of(const millrace_sample& sample) {
  return sample.size.width * sample.size.height * sample.channels;
}
[[maybe_unused]] float* pixels(void* sample) { return static_cast<float*>(sample); }
[[maybe_unused]] void require_floats(const millrace_sample& sample) {
  if (sample.dtype != MILLRACE_F32) throw millrace::BadUse("it mixes f32 alone");
}

#if defined(GROUP_OLD) || defined(GROUP_NEW)
struct Halves {
  static constexpr const char* kName = "halves";
  static constexpr const char* kHelp = "halve the difference of neighbours, or not";
  void pair(const millrace::Pair& pair, millrace::Call& call) const {
    require_floats(pair.sample);
    if (call.chance(0.5)) return;
    halve(pixels(pair.first), pixels(pair.second), elements_of(pair.sample));
    halve(pair.first_labels, pair.second_labels, pair.sample.classes);
  }
};
#elif defined(GROUP_OVERRUN)
struct Overrun {
  static constexpr const char* kName = "overrun";
  static constexpr const char* kHelp = "mixes a sample more than it declares";
  static constexpr int kGroup = 2;
  static constexpr bool kRandom = true;
  void mix(const millrace::Group& group, millrace::Call&) const {
    require_floats(group.sample);
    for (int i = 0; i < 2; ++i)
      halve(pixels(group.samples[i]), pixels(group.samples[i + 1]), elements_of(group.sample));
  }
};
#elif defined(GROUP_TOO_LARGE)
struct TooLarge {
  static constexpr const char* kName = "too_large";
  static constexpr const char* kHelp = "mixes pairs, and declares groups of four";
  static constexpr int kGroup = 4;
  void mix(const millrace::Group& group, millrace::Call&) const {
    require_floats(group.sample);
    for (int i = 0; i < 4; i += 2)
      halve(pixels(group.samples[i]), pixels(group.samples[i + 1]), elements_of(group.sample));
  }
};
#elif defined(GROUP_WHOLE)
struct Turn {
  static constexpr const char* kName = "turn";
  static constexpr const char* kHelp = "gives each sample of a batch half of the one before it";
  static constexpr int kGroup = MILLRACE_WHOLE_BATCH;
  void mix(const millrace::Group& group, millrace::Call&) const {
    require_floats(group.sample);
    for (std::size_t i = group.count - 1; i > 0; --i) {
      halve_first(pixels(group.samples[i]), pixels(group.samples[i - 1]),
                  elements_of(group.sample));
      halve_first(group.labels[i], group.labels[i - 1], group.sample.classes);
    }
  }
  static void halve_first(float* to, const float* from, int count) {
    for (int i = 0; i < count; ++i) to[i] = (to[i] + from[i]) / 2;
  }
};
#elif defined(GROUP_OF_ONE)
struct OfOne {
  static constexpr const char* kName = "of_one";
  static constexpr const char* kHelp = "declares groups that nothing can mix";
  static constexpr int kGroup = 4;
  void mix(const millrace::Group&, millrace::Call&) const {}
};
#endif

}  // namespace

#if defined(GROUP_OLD)
// The tables as the headers of interface 1.0 made them.
namespace {

struct FirstBatch {
  std::size_t struct_size;
  decltype(millrace_batch::pair) pair;
};
constexpr FirstBatch kBatch{sizeof(FirstBatch), millrace::kUnit<Halves>.batch->pair};
const millrace_unit unit = [] {
  millrace_unit made = millrace::kUnit<Halves>;
  made.batch = reinterpret_cast<const millrace_batch*>(&kBatch);
  return made;
}();
const millrace_unit* const units[] = {&unit};

}  // namespace
extern "C" __attribute__((visibility("default"), used))
const millrace_plugin_table millrace_plugin = {
    MILLRACE_MAGIC, 1, 0, sizeof(millrace_plugin_table), "halves", "1.0", "MIT", units, 1};
#elif defined(GROUP_NEW)
MILLRACE_PLUGIN("halves", "1.0", "MIT", Halves);
#elif defined(GROUP_OVERRUN)
MILLRACE_PLUGIN("overrun", "1.0", "MIT", Overrun);
#elif defined(GROUP_TOO_LARGE)
MILLRACE_PLUGIN("too_large", "1.0", "MIT", TooLarge);
#elif defined(GROUP_WHOLE)
MILLRACE_PLUGIN("turn", "1.0", "MIT", Turn);
#elif defined(GROUP_OF_ONE)
namespace {
constexpr millrace_batch one_batch() {
  millrace_batch batch = *millrace::kUnit<OfOne>.batch;
  batch.group = 1;
  return batch;
}
constexpr millrace_batch kBatch = one_batch();
constexpr millrace_unit one_unit() {
  millrace_unit unit = millrace::kUnit<OfOne>;
  unit.batch = &kBatch;
  return unit;
}
constexpr millrace_unit kOne = one_unit();
constexpr const millrace_unit* kUnits[] = {&kOne};
}  // namespace
extern "C" __attribute__((visibility("default"), used))
const millrace_plugin_table millrace_plugin = {MILLRACE_MAGIC,
                                               MILLRACE_ABI_MAJOR,
                                               MILLRACE_ABI_MINOR,
                                               sizeof(millrace_plugin_table),
                                               "of_one",
                                               "1.0",
                                               "MIT",
                                               kUnits,
                                               1};
#endif
