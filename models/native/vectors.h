// Vector types of the compiler, as wide as an instruction set's registers.
#pragma once

#include <cstdint>

namespace millrace::train::native {

/// `kBytes` bytes of T as one value, with element-wise arithmetic. Comparisons give masks.
template <class T, int kBytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(kBytes), may_alias));
};

template <class T>
struct MaskElement;
template <>
struct MaskElement<float> {
  using type = std::int32_t;
};
template <>
struct MaskElement<double> {
  using type = std::int64_t;
};

}  // namespace millrace::train::native
