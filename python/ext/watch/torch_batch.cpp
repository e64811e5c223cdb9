#include "python/ext/watch/torch_batch.h"

#include <atomic>

#include "measure/data_loader/clock.h"

namespace nb = nanobind;

namespace millrace::python {
namespace {

using measure::kUnknown;

/// Returns what a call of Python's C interface has returned. Throws if that is null for an error.
nb::object checked(PyObject* returned) {
  if (returned == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
  return nb::steal(returned);
}

Py_ssize_t size_of(nb::handle data) {
  const Py_ssize_t size = PyObject_Size(data.ptr());
  if (size < 0) throw nb::python_error();
  return size;
}

/// Returns the attribute "shape", or null.
nb::object shape_of(nb::handle data) {
  static std::atomic<PyObject*> name{nullptr};  // kept for good, as mapping()
  if (name == nullptr) name = checked(PyUnicode_InternFromString("shape")).release().ptr();
  PyObject* const shape = PyObject_GetAttr(data.ptr(), name);
  if (shape == nullptr && PyErr_ExceptionMatches(PyExc_AttributeError) != 0) PyErr_Clear();
  return checked(shape);
}

/// Returns collections.abc.Mapping, looked up once and kept for good.
const nb::object& mapping() {
  // A local static's own lock could wait for the GIL.
  static std::atomic<const nb::object*> found{nullptr};
  if (found == nullptr)
    found = new nb::object(nb::module_::import_("collections.abc").attr("Mapping"));
  return *found.load();
}

bool is_scalar(nb::handle data) {
  PyObject* const one = data.ptr();
  return one == Py_None || PyUnicode_Check(one) || PyBytes_Check(one) || PyLong_Check(one) ||
         PyFloat_Check(one);
}

/// Returns the first value of a mapping or the first element of a list or tuple; null if there is
/// none.
nb::object first_of(nb::handle data) {
  if (PyDict_Check(data.ptr())) {
    const nb::ft_object_guard guard(data);
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    if (PyDict_Next(data.ptr(), &at, &key, &value) == 0) return {};
    return nb::borrow(value);
  }
  if (!PyList_Check(data.ptr()) && !PyTuple_Check(data.ptr())) {
    if (!nb::isinstance(data, mapping())) return {};
    const nb::object values = checked(PyObject_GetIter(nb::object(data.attr("values")()).ptr()));
    return checked(PyIter_Next(values.ptr()));
  }
  if (size_of(data) <= 0) return {};
  return checked(PySequence_GetItem(data.ptr(), 0));
}

/// Returns the number of samples of a batch: the length of its first array; kUnknown if there is
/// none.
std::int64_t length_of(nb::handle batch) {
  nb::object data = nb::borrow(batch);
  for (int depth = 0; depth < 8; ++depth) {
    if (is_scalar(data)) return kUnknown;
    if (!PyDict_Check(data.ptr()) && !PyList_Check(data.ptr()) && !PyTuple_Check(data.ptr())) {
      const nb::object shape = shape_of(data);
      if (shape.is_valid() && !shape.is_none())
        return size_of(shape) > 0 ? nb::cast<std::int64_t>(nb::object(shape[0])) : kUnknown;
    }
    data = first_of(data);
    if (!data.is_valid()) return kUnknown;
  }
  return kUnknown;
}

/// Returns pymillrace.watcher.faults, looked up once and kept for good.
const nb::object& faults() {
  // A local static's own lock could wait for the GIL.
  static std::atomic<const nb::object*> found{nullptr};
  if (found == nullptr) found = new nb::object(nb::module_::import_("pymillrace.watcher.faults"));
  return *found.load();
}

}  // namespace

std::int64_t batch_of(nb::handle task) {
  PyObject* const one = task.ptr();
  if (!PyTuple_Check(one) || PyTuple_Size(one) != 2) return kUnknown;
  PyObject* const number = PyTuple_GetItem(one, 0);
  if (!PyLong_CheckExact(number)) return kUnknown;
  int overflow = 0;
  const long long batch = PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow == 0 && 0 <= batch && batch < 1LL << 62 ? batch : kUnknown;
}

std::int64_t samples_at(nb::handle index) {
  const Py_ssize_t size = PyObject_Size(index.ptr());
  if (size >= 0) return size;
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return 1;
}

std::int64_t samples_in(nb::handle batch) {
  try {
    return length_of(batch);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    const bool ran_python = error.traceback().is_valid() && !error.traceback().is_none();
    if (ran_python && nb::cast<bool>(faults().attr("is_of_signal_handler")(error.value()))) throw;
    return kUnknown;
  } catch (const nb::cast_error&) {
    return kUnknown;
  }
}

}  // namespace millrace::python
