// Memory of the pipeline's as a memoryview that Python may write to.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

namespace millrace::python {

/// Returns a new reference to a memoryview of `size` bytes, which does not own them; null with
/// Python's error. Call it with the GIL.
inline PyObject* memory_view(std::uint8_t* bytes, std::size_t size) {
#ifdef PyBUF_WRITE
  constexpr int kWrite = PyBUF_WRITE;
#else
  constexpr int kWrite = 0x200;  // its value; the stable interface of Python 3.10 lacks the name
#endif
  return PyMemoryView_FromMemory(reinterpret_cast<char*>(bytes), static_cast<Py_ssize_t>(size),
                                 kWrite);
}

}  // namespace millrace::python
