// Exports a batch's memory as tensors and arrays.
#include "python/ext/batch.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "millrace/error.h"
#include "python/ext/arrays.h"
#include "python/ext/gil.h"

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

const std::shared_ptr<OwnBatch>& self_of(nb::handle self) { return nb::cast<RawBatch&>(self).own; }

/// Returns an array of memory of the batch, which it keeps alive. The memory belongs to the batch
/// alone, so Python may write to it.
nb::object array(nb::handle self, const std::shared_ptr<OwnBatch>& own, const void* data,
                 const Shape& shape, nb::dlpack::dtype type) {
  return own->numpy ? numpy_array(data, shape, type, nb::borrow(self))
                    : tensor(data, shape, type, own);
}

Shape shape_of(const SampleSpec& spec, Size size, std::int64_t count) {
  const std::int64_t height = size.height, width = size.width, channels = spec.channels;
  if (spec.layout == Layout::hwc) return {count, height, width, channels};
  return {count, channels, height, width};
}

/// Returns an instance of `type`, a subclass of tuple, with (images, labels).
nb::object images_and_labels(nb::handle type, nb::handle self) {
  const std::shared_ptr<OwnBatch>& own = self_of(self);
  const Batch& batch = own->batch;
  const SampleSpec& spec = own->source->output;
  const std::int64_t count = batch.count();
  nb::object images =
      array(self, own, batch.data(), shape_of(spec, batch.size(), count), type_of(spec.dtype));
  nb::object labels =
      batch.classes() > 0
          ? array(self, own, batch.probabilities(), {count, batch.classes()}, nb::dtype<float>())
          : array(self, own, batch.labels(), {count}, nb::dtype<std::int64_t>());
  // The type's own call would copy a tuple that it is given.
  const auto allocate = reinterpret_cast<allocfunc>(
      PyType_GetSlot(reinterpret_cast<PyTypeObject*>(type.ptr()), Py_tp_alloc));
  PyObject* both =
      survive([&] { return allocate(reinterpret_cast<PyTypeObject*>(type.ptr()), 2); });
  if (both == nullptr) throw nb::python_error();
  PyTuple_SetItem(both, 0, images.release().ptr());
  PyTuple_SetItem(both, 1, labels.release().ptr());
  return nb::steal(both);
}

nb::object class_ids(nb::handle self) {
  const std::shared_ptr<OwnBatch>& own = self_of(self);
  return array(self, own, own->batch.labels(), {own->batch.count()}, nb::dtype<std::int64_t>());
}

nb::object samples(nb::handle self) {
  static_assert(sizeof(std::uint64_t) == sizeof(std::int64_t));  // indices lie far below 2^63
  const std::shared_ptr<OwnBatch>& own = self_of(self);
  return array(self, own, own->batch.samples(), {own->batch.count()}, nb::dtype<std::int64_t>());
}

nb::object warps(nb::handle self) {
  const std::shared_ptr<OwnBatch>& own = self_of(self);
  if (own->batch.warps() == nullptr) return nb::none();
  return array(self, own, own->batch.warps(), {own->batch.count(), 3, 3}, nb::dtype<float>());
}

/// Returns the boxes, their offsets by sample, class ids, places among the annotations of their
/// image, its index in the data set, weights, key points and masks (None if there are none); None
/// if the data set marks no objects.
nb::object objects(nb::handle self) {
  const std::shared_ptr<OwnBatch>& own = self_of(self);
  const Annotations* annotations = own->source->reader->annotations();
  if (annotations == nullptr) return nb::none();
  const Objects& all = own->batch.objects();
  const std::int64_t samples = own->batch.count();
  const std::int64_t count = all.offsets[static_cast<std::size_t>(samples)];
  const auto points = static_cast<std::int64_t>(annotations->points);
  const auto whole = nb::dtype<std::int64_t>();
  return nb::make_tuple(
      array(self, own, all.boxes.data(), {count, 4}, nb::dtype<float>()),
      array(self, own, all.offsets.data(), {samples + 1}, whole),
      array(self, own, all.classes.data(), {count}, whole),
      array(self, own, all.origins.data(), {count}, whole),
      array(self, own, all.samples.data(), {count}, whole),
      array(self, own, all.weights.data(), {count}, nb::dtype<float>()),
      points == 0 ? nb::object(nb::none())
                  : array(self, own, all.key_points.data(), {count, points, 3}, nb::dtype<float>()),
      annotations->has_outlines ? array(self, own, all.masks.data(),
                                        {count, own->batch.size().height, own->batch.size().width},
                                        nb::dtype<std::uint8_t>())
                                : nb::object(nb::none()));
}

/// Returns the masks, count x height x width; None if the data set has none.
nb::object masks(nb::handle self) {
  const std::shared_ptr<OwnBatch>& own = self_of(self);
  if (!own->source->reader->info().masks) return nb::none();
  const Size size = own->batch.size();
  return array(self, own, own->batch.masks().data(), {own->batch.count(), size.height, size.width},
               nb::dtype<std::uint8_t>());
}

/// Returns the data set's own number of each sample's image. Call it with annotations only.
std::vector<std::int64_t> image_ids(const RawBatch& raw) {
  const OwnBatch& own = *raw.own;
  const Annotations* annotations = own.source->reader->annotations();
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; annotations != nullptr && i < own.batch.count(); ++i)
    ids.push_back(annotations->image_ids[own.batch.samples()[i]]);
  return ids;
}

/// Returns the numbers of numeric targets as an array of count x width, or count for plain numbers;
/// JSON texts as a list; None if the data set has no targets.
nb::object targets(nb::handle self) {
  const OwnBatch& own = *self_of(self);
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
  const auto numbers = std::make_shared<std::vector<float>>();
  for (std::size_t i = 0; i < count; ++i) {
    const std::span<const float> one = all->numbers_of(samples[i]);
    numbers->insert(numbers->end(), one.begin(), one.end());
  }
  const Shape shape = all->width > 0
                          ? Shape{own.batch.count(), static_cast<std::int64_t>(all->width)}
                          : Shape{own.batch.count()};
  if (!own.numpy) return tensor(numbers->data(), shape, nb::dtype<float>(), numbers);
  using Owner = std::shared_ptr<std::vector<float>>;
  const nb::capsule owner(new Owner(numbers),
                          [](void* memory) noexcept { delete static_cast<Owner*>(memory); });
  return numpy_array(numbers->data(), shape, nb::dtype<float>(), owner);
}

const std::vector<std::string>& member_names(const RawBatch& raw) {
  return raw.own->source->reader->info().members;
}

/// Returns the member of each sample that has the name at `name`: bytes, or None.
std::vector<std::optional<nb::bytes>> member(const RawBatch& raw, std::size_t name) {
  const OwnBatch& own = *raw.own;
  if (own.source->mixes)
    throw UsageError("batch.members: an op mixes samples, and their members stay apart",
                     "leave out mixup, cutmix and the like, or mix in a function per batch");
  std::vector<std::optional<nb::bytes>> all(static_cast<std::size_t>(own.batch.count()));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (const Member one = own.batch.member(static_cast<std::int64_t>(i), name))
      all[i].emplace(one->data(), one->size());
  return all;
}

std::vector<std::string> names(const RawBatch& raw) {
  const Batch& batch = raw.own->batch;
  return Names{raw.own->source}.of({batch.samples(), batch.samples() + batch.count()});
}

}  // namespace

std::vector<std::string> Names::of(const std::vector<std::uint64_t>& samples) const {
  return source->run([&] {
    std::vector<std::string> all;
    for (const std::uint64_t sample : samples) all.push_back(source->reader->name(sample));
    return all;
  });
}

nb::object make_batch(nb::handle type, std::shared_ptr<OwnBatch> own) {
  static std::atomic<PyObject*> raw{nullptr};  // see NumPy::get()
  if (raw == nullptr) raw = PyUnicode_InternFromString("_raw");
  const nb::object self = nb::cast(RawBatch{std::move(own)});
  nb::object batch = images_and_labels(type, self);
  if (survive([&] { return PyObject_SetAttr(batch.ptr(), raw.load(), self.ptr()); }) != 0)
    throw nb::python_error();
  return batch;
}

void bind_batch(nb::module_& module) {
  nb::class_<Names>(module, "Names")
      .def("of", &Names::of, nb::arg("samples"), nb::call_guard<ReleasedGil>());
  nb::class_<RawBatch>(module, "Batch")
      .def("class_ids", &class_ids)
      .def("samples", &samples)
      .def("warps", &warps)
      .def("targets", &targets)
      .def("objects", &objects)
      .def("masks", &masks)
      .def("image_ids", &image_ids)
      .def("member_names", &member_names)
      .def("member", &member, nb::arg("name"))
      .def("names", &names, nb::call_guard<ReleasedGil>())
      .def_prop_ro("count", [](const RawBatch& raw) { return raw.own->batch.count(); })
      .def_prop_ro("epoch", [](const RawBatch& raw) { return raw.own->batch.epoch(); })
      .def_prop_ro("index", [](const RawBatch& raw) { return raw.own->batch.index(); });
}

}  // namespace millrace::python
