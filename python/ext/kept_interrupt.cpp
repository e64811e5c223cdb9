#include "python/ext/kept_interrupt.h"

#include <nanobind/nanobind.h>

namespace millrace::python {
namespace {

/// A KeyboardInterrupt, as PyErr_Fetch() gives it.
struct Interrupt {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
};
thread_local Interrupt t_interrupt;

}  // namespace

bool keep_interrupt() {
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) == 0) return false;
  PyErr_Fetch(&t_interrupt.type, &t_interrupt.value, &t_interrupt.trace);
  return true;
}

bool has_interrupt() { return t_interrupt.type != nullptr; }

void raise_interrupt() {
  if (!has_interrupt()) return;
  PyErr_Restore(t_interrupt.type, t_interrupt.value, t_interrupt.trace);
  t_interrupt = {};
  throw nanobind::python_error();
}

}  // namespace millrace::python
