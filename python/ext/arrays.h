// Arrays over memory of the pipeline, without copying.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>

namespace millrace::python {

/// Shape of an array, of up to four dimensions.
struct Shape {
  std::array<std::int64_t, 4> sizes{};
  int dimensions = 0;

  Shape(std::initializer_list<std::int64_t> list) : dimensions(static_cast<int>(list.size())) {
    std::copy(list.begin(), list.end(), sizes.begin());
  }
};

/// Returns a torch.Tensor of `data`, which lives as long as `owner`. The memory is passed on by
/// DLPack. Whichever thread releases the tensor's storage needs no GIL for it.
nanobind::object tensor(const void* data, const Shape& shape, nanobind::dlpack::dtype type,
                        std::shared_ptr<const void> owner);

/// Returns a numpy.ndarray of `data`, which lives as long as the object `owner`.
nanobind::object numpy_array(const void* data, const Shape& shape, nanobind::dlpack::dtype type,
                             nanobind::object owner);

}  // namespace millrace::python
