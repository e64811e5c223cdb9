// Makes tensors through DLPack, and arrays through NumPy's C interface.
#include "python/ext/arrays.h"

#include <atomic>
#include <utility>

#include "python/ext/gil.h"

namespace nb = nanobind;

namespace millrace::python {
namespace {

/// DLManagedTensor of DLPack before version 1.0, which every PyTorch reads, and what it points to.
struct LentTensor {
  nb::dlpack::dltensor tensor;
  void* context = nullptr;
  void (*deleter)(LentTensor*) = nullptr;
  // Members of our own follow.
  Shape shape;
  std::shared_ptr<const void> owner;
};

/// Name of a capsule whose tensor has not been taken out.
constexpr const char* kUnused = "dltensor";

void drop_unused(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kUnused) == 0) return;
  auto* lent = static_cast<LentTensor*>(PyCapsule_GetPointer(capsule, kUnused));
  lent->deleter(lent);
}

/// Imports a module, which runs Python code.
nb::module_ module(const char* name) {
  PyObject* found = survive([name] { return PyImport_ImportModule(name); });
  if (found == nullptr) throw nb::python_error();
  return nb::steal<nb::module_>(found);
}

/// Functions of NumPy's C interface, by their places in its table, which no version changes. Their
/// headers would bind this module to the version of NumPy that it was built with.
struct NumPy {
  using NewFromDescr = PyObject* (*)(PyTypeObject*, PyObject*, int, const Py_ssize_t*,
                                     const Py_ssize_t*, void*, int, PyObject*);
  using SetBaseObject = int (*)(PyObject*, PyObject*);
  PyTypeObject* array;
  NewFromDescr new_from_descr;
  SetBaseObject set_base_object;
  nb::object f32, f16, u8, i64;

  /// Returns what was looked up once and is never released. Call it with the GIL.
  static const NumPy& get() {
    // A local static's own lock could wait for the GIL.
    static std::atomic<const NumPy*> found{nullptr};
    if (found == nullptr) {
      const nb::module_ numpy = module("numpy");
      const bool second = nb::hasattr(numpy, "_core");
      const nb::object api =
          module(second ? "numpy._core.multiarray" : "numpy.core.multiarray").attr("_ARRAY_API");
      auto* const* table = static_cast<void**>(PyCapsule_GetPointer(api.ptr(), nullptr));
      if (table == nullptr) throw nb::python_error();
      const auto type = [&](const char* name) { return numpy.attr("dtype")(name); };
      found = new NumPy{static_cast<PyTypeObject*>(table[2]),
                        reinterpret_cast<NewFromDescr>(table[94]),
                        reinterpret_cast<SetBaseObject>(table[282]),
                        type("float32"),
                        type("float16"),
                        type("uint8"),
                        type("int64")};
    }
    return *found.load();
  }
  const nb::object& dtype(nb::dlpack::dtype of) const {
    if (of.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int)) return i64;
    return of.bits == 8 ? u8 : of.bits == 16 ? f16 : f32;
  }
};

}  // namespace

nb::object tensor(const void* data, const Shape& shape, nb::dlpack::dtype type,
                  std::shared_ptr<const void> owner) {
  static std::atomic<PyObject*> from_dlpack{nullptr};  // see NumPy::get()
  if (from_dlpack == nullptr) {
    // The function behind torch.utils.dlpack.from_dlpack, which only finds out that it has a
    // capsule.
    const nb::module_ torch = module("torch._C");
    const nb::object found = nb::hasattr(torch, "_from_dlpack")
                                 ? torch.attr("_from_dlpack")
                                 : module("torch.utils.dlpack").attr("from_dlpack");
    from_dlpack = found.inc_ref().ptr();
  }
  auto lent = std::make_unique<LentTensor>(
      LentTensor{{}, nullptr, [](LentTensor* self) { delete self; }, shape, std::move(owner)});
  lent->tensor.data = const_cast<void*>(data);  // the batch belongs to Python alone
  lent->tensor.device.device_type = nb::device::cpu::value;
  lent->tensor.ndim = shape.dimensions;
  lent->tensor.dtype = type;
  lent->tensor.shape = lent->shape.sizes.data();
  const nb::object capsule = nb::steal(PyCapsule_New(lent.get(), kUnused, &drop_unused));
  if (!capsule.is_valid()) throw nb::python_error();
  lent.release();  // NOLINT(bugprone-unused-return-value): the capsule has it
  PyObject* made = survive(
      [&] { return PyObject_CallFunctionObjArgs(from_dlpack.load(), capsule.ptr(), nullptr); });
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

nb::object numpy_array(const void* data, const Shape& shape, nb::dlpack::dtype type,
                       nb::object owner) {
  constexpr int kContiguousAlignedWriteable = 0x0001 | 0x0100 | 0x0400;
  const NumPy& numpy = NumPy::get();
  std::array<Py_ssize_t, 4> sizes{};
  std::copy(shape.sizes.begin(), shape.sizes.end(), sizes.begin());
  PyObject* const descr = nb::object(numpy.dtype(type)).release().ptr();
  nb::object array = nb::steal(survive([&] {
    return numpy.new_from_descr(numpy.array, descr, shape.dimensions, sizes.data(), nullptr,
                                const_cast<void*>(data), kContiguousAlignedWriteable, nullptr);
  }));
  if (!array.is_valid()) throw nb::python_error();
  if (numpy.set_base_object(array.ptr(), owner.release().ptr()) != 0) throw nb::python_error();
  return array;
}

}  // namespace millrace::python
