// Exports a batch's memory as tensors and arrays, without copying.
#include "python/ext/batch.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "millrace/error.h"

namespace nb = nanobind;

namespace millrace::python {
namespace {

nb::dlpack::dtype type_of(DType dtype) {
  using nb::dlpack::dtype_code;
  switch (dtype) {
    case DType::f32:
      return nb::dtype<float>();
    case DType::u8:
      return nb::dtype<std::uint8_t>();
    case DType::f16:
      return {static_cast<std::uint8_t>(dtype_code::Float), 16, 1};
    case DType::bf16:
      break;
  }
  return {static_cast<std::uint8_t>(dtype_code::Bfloat), 16, 1};
}

/// NumPy's objects that batches need, looked up once and never released. Call it with the GIL.
struct NumPy {
  nb::object ndarray, f32, f16, u8, i64;

  static const NumPy& get() {
    static const NumPy* found = nullptr;  // a local static's own lock could wait for the GIL
    if (found == nullptr) {
      const nb::module_ numpy = nb::module_::import_("numpy");
      const auto type = [&](const char* name) { return numpy.attr("dtype")(name); };
      found = new NumPy{numpy.attr("ndarray"), type("float32"), type("float16"), type("uint8"),
                        type("int64")};
    }
    return *found;
  }
  const nb::object& dtype(nb::dlpack::dtype of) const {
    if (of.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int)) return i64;
    return of.bits == 8 ? u8 : of.bits == 16 ? f16 : f32;
  }
};

/// Shape of an array, of up to four dimensions.
struct Shape {
  std::array<std::size_t, 4> sizes{};
  std::size_t dimensions = 0;

  Shape(std::initializer_list<std::size_t> list) : dimensions(list.size()) {
    std::copy(list.begin(), list.end(), sizes.begin());
  }
  std::size_t elements() const {
    return std::accumulate(sizes.begin(), sizes.begin() + dimensions, std::size_t{1},
                           std::multiplies<>());
  }
};

/// Memory of a batch, of which arrays are made that keep `owner` alive. It belongs to the batch
/// alone, so Python may write to it.
class Memory {
 public:
  Memory(bool numpy, const void* data, std::size_t bytes, nb::handle owner)
      : numpy_(numpy), data_(static_cast<std::byte*>(const_cast<void*>(data))), owner_(owner) {
    if (numpy_)
      buffer_ = nb::cast(nb::ndarray<nb::array_api>(
          data_, 1, &bytes, owner, nullptr, nb::dtype<std::uint8_t>(), nb::device::cpu::value));
  }

  /// Returns a torch.Tensor or a numpy.ndarray of the elements from `begin` on.
  nb::object array(const void* begin, const Shape& shape, nb::dlpack::dtype type) const {
    const std::ptrdiff_t offset = static_cast<const std::byte*>(begin) - data_;
    if (!numpy_) {  // a capsule of DLPack, which takes PyTorch fewer steps than an object with one
      static const nb::object* from_dlpack = nullptr;  // see NumPy::get()
      if (from_dlpack == nullptr)
        from_dlpack =
            new nb::object(nb::module_::import_("torch.utils.dlpack").attr("from_dlpack"));
      return (*from_dlpack)(
          nb::cast(nb::ndarray<>(data_ + offset, shape.dimensions, shape.sizes.data(), owner_,
                                 nullptr, type, nb::device::cpu::value)));
    }
    const NumPy& numpy = NumPy::get();
    const nb::object sizes = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.dimensions)));
    for (std::size_t i = 0; i < shape.dimensions; ++i)
      PyTuple_SetItem(sizes.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromSize_t(shape.sizes[i]));
    return numpy.ndarray(sizes, numpy.dtype(type), buffer_, offset);
  }

 private:
  bool numpy_;
  std::byte* data_;
  nb::handle owner_;
  nb::object buffer_;  ///< all of it as bytes, for NumPy
};

OwnBatch& self_of(nb::handle self) { return nb::cast<OwnBatch&>(self); }

/// Returns an array of memory that lies apart from the batch's other arrays.
nb::object array(bool numpy, const void* data, const Shape& shape, nb::dlpack::dtype type,
                 nb::handle owner) {
  const Memory memory(numpy, data, shape.elements() * type.bits / 8, owner);
  return memory.array(data, shape, type);
}

Shape shape_of(const SampleSpec& spec, std::size_t count) {
  const auto height = static_cast<std::size_t>(spec.size.height);
  const auto width = static_cast<std::size_t>(spec.size.width);
  const auto channels = static_cast<std::size_t>(spec.channels);
  if (spec.layout == Layout::hwc) return {count, height, width, channels};
  return {count, channels, height, width};
}

/// Returns the tuple (images, labels). Both are views of one block (BatchContents).
nb::object images_and_labels(const OwnBatch& own, nb::handle self) {
  const Batch& batch = own.batch;
  const SampleSpec& spec = own.source->output;
  const auto count = static_cast<std::size_t>(batch.count());
  const auto classes = static_cast<std::size_t>(batch.classes());
  const void* end = batch.labels() + count;
  if (classes > 0) end = batch.probabilities() + count * classes;
  const auto bytes = static_cast<std::size_t>(static_cast<const std::byte*>(end) - batch.data());
  const Memory memory(own.numpy, batch.data(), bytes, self);
  const nb::object images = memory.array(batch.data(), shape_of(spec, count), type_of(spec.dtype));
  if (classes > 0)
    return nb::make_tuple(
        images, memory.array(batch.probabilities(), {count, classes}, nb::dtype<float>()));
  return nb::make_tuple(images, memory.array(batch.labels(), {count}, nb::dtype<std::int64_t>()));
}

nb::object class_ids(nb::handle self) {
  const OwnBatch& own = self_of(self);
  return array(own.numpy, own.batch.labels(), {static_cast<std::size_t>(own.batch.count())},
               nb::dtype<std::int64_t>(), self);
}

nb::object samples(nb::handle self) {
  static_assert(sizeof(std::uint64_t) == sizeof(std::int64_t));  // indices lie far below 2^63
  const OwnBatch& own = self_of(self);
  return array(own.numpy, own.batch.samples(), {static_cast<std::size_t>(own.batch.count())},
               nb::dtype<std::int64_t>(), self);
}

nb::object warps(nb::handle self) {
  const OwnBatch& own = self_of(self);
  if (own.warps.empty() && own.batch.count() > 0) return nb::none();
  return array(own.numpy, own.warps.data(), {static_cast<std::size_t>(own.batch.count()), 3, 3},
               nb::dtype<float>(), self);
}

/// Returns the numbers of numeric targets as an array of count x width, or count for plain numbers;
/// JSON texts as a list; None if the data set has no targets.
nb::object targets(nb::handle self) {
  const OwnBatch& own = self_of(self);
  const Targets* all = own.source->reader->targets();
  if (all == nullptr) return nb::none();
  if (own.source->mixes)
    throw UsageError("batch.targets: an op mixes samples, and their targets stay apart",
                     "leave out mixup, cutmix and the like, or mix in a function per batch");
  const auto count = static_cast<std::size_t>(own.batch.count());
  const std::uint64_t* samples = own.batch.samples();
  if (!all->numeric) {
    nb::list texts;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string_view text = all->json_of(samples[i]);
      texts.append(nb::str(text.data(), text.size()));
    }
    return texts;
  }
  auto numbers = std::make_unique<std::vector<float>>();
  for (std::size_t i = 0; i < count; ++i) {
    const std::span<const float> one = all->numbers_of(samples[i]);
    numbers->insert(numbers->end(), one.begin(), one.end());
  }
  const Shape shape = all->width > 0 ? Shape{count, all->width} : Shape{count};
  const float* data = numbers->data();
  const nb::capsule owner(numbers.release(), [](void* memory) noexcept {
    delete static_cast<std::vector<float>*>(memory);
  });
  return array(own.numpy, data, shape, nb::dtype<float>(), owner);
}

std::vector<std::string> names(const OwnBatch& own) {
  return own.source->run([&] {
    std::vector<std::string> all;
    for (std::int64_t i = 0; i < own.batch.count(); ++i)
      all.push_back(own.source->reader->name(own.batch.samples()[i]));
    return all;
  });
}

}  // namespace

nb::object make_batch(nb::handle type, OwnBatch own) {
  static PyObject* const raw = PyUnicode_InternFromString("_raw");
  const nb::object self = nb::cast(std::move(own));
  nb::object batch = type(images_and_labels(self_of(self), self));
  nb::setattr(batch, raw, self);
  return batch;
}

void bind_batch(nb::module_& module) {
  nb::class_<OwnBatch>(module, "Batch")
      .def("class_ids", &class_ids)
      .def("samples", &samples)
      .def("warps", &warps)
      .def("targets", &targets)
      .def("names", &names, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("count", [](const OwnBatch& own) { return own.batch.count(); })
      .def_prop_ro("epoch", [](const OwnBatch& own) { return own.batch.epoch(); })
      .def_prop_ro("index", [](const OwnBatch& own) { return own.batch.index(); });
}

}  // namespace millrace::python
