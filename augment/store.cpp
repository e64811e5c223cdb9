#include "augment/store.h"

namespace millrace {

Store::Store(DType dtype, Layout layout, int channels, const std::vector<double>& mean,
             const std::vector<double>& std)
    : dtype_(dtype), layout_(layout), levels_(static_cast<std::size_t>(channels)) {
  for (std::size_t c = 0; c < levels_.size(); ++c) {
    const auto m = static_cast<float>(mean[mean.size() == 1 ? 0 : c]);
    const auto s = static_cast<float>(std[std.size() == 1 ? 0 : c]);
    for (std::size_t level = 0; level < 256; ++level)
      levels_[c][level] = (static_cast<float>(level) / 255.0f - m) / s;
  }
}

}  // namespace millrace
