// copy_paste (Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation Method for Instance
// Segmentation", 2021): pastes objects of each of two neighbours onto the other by their masks,
// where they lie, without blending. The ops before it do what the paper's jitter of scales does.
#include <span>

#include "augment/ops/builtin.h"
#include "augment/ops/pixels.h"
#include "augment/plan/pasting.h"

namespace millrace::augment {
namespace {

struct CopyPaste {
  static constexpr const char* kName = "copy_paste";
  static constexpr const char* kPython = "CopyPaste";
  static constexpr const char* kHelp = "paste objects of neighbouring samples onto each other";
  static constexpr int kGroup = 2;
  static constexpr Parameter kParams[] = {
      number("p", "0.5", 0, 1, "probability that an object is pasted")};

  explicit CopyPaste(const Values& values) : p(values.number("p")) {}

  /// Says where pasted pixels come from; pick() limits them to objects.
  void parts(const millrace_sample& sample, Parts& parts, Call&) const {
    const Rect whole{0, 0, sample.size.width, sample.size.height};
    for (int to = 0; to < kGroup; ++to) parts.add({to, 1 - to, whole, 0, 0, 1});
  }
  static void pick(const void* self, std::size_t to, std::span<std::uint8_t> picked, Call& call) {
    int count = 0;
    for (std::uint8_t& one : picked) {
      one = call.chance(static_cast<const CopyPaste*>(self)->p) ? 1 : 0;
      count += one;
    }
    call.report(to == 0 ? "onto0" : "onto1", count);
  }

  double p;
};

}  // namespace

const Augmentation kCopyPaste = kAugmentation<CopyPaste>;

namespace {

const Pasting kRegisteredPicker(kCopyPaste.unit, &CopyPaste::pick);

}  // namespace

}  // namespace millrace::augment
