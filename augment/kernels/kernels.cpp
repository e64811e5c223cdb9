// Selects the kernels of the SIMD level in use.
#include "augment/kernels/kernels.h"

namespace millrace::augment {

const Kernels& kernels(base::Simd level) {
  static const std::array<Kernels, 3> tables = [] {
    std::array<Kernels, 3> all{};
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto each = static_cast<base::Simd>(i);
      add_move_kernels(each, all[i]);
      add_position_kernels(each, all[i]);
      add_nearest_kernels(each, all[i]);
      add_bilinear_kernels(each, all[i]);
      add_reduce_rows_kernels(each, all[i]);
      add_reduce_pixels_kernels(each, all[i]);
      add_lookup_kernels(each, all[i]);
    }
    return all;
  }();
  return tables[static_cast<std::size_t>(level)];
}

}  // namespace millrace::augment
