// Exports a batch's memory as tensors and arrays, without copying.
#include "python/ext/batch.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <memory>
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

/// Returns a view of `data` that keeps `owner` alive: a torch.Tensor or a numpy.ndarray.
nb::object view(bool numpy, const void* data, std::vector<std::size_t> shape,
                nb::dlpack::dtype type, nb::handle owner) {
  // The memory belongs to this batch alone, so the caller may write to it.
  void* const memory = const_cast<void*>(data);
  const auto make = [&](auto framework) {
    using Array = nb::ndarray<decltype(framework)>;
    return nb::cast(
        Array(memory, shape.size(), shape.data(), owner, nullptr, type, nb::device::cpu::value));
  };
  return numpy ? make(nb::numpy{}) : make(nb::pytorch{});
}

OwnBatch& self_of(nb::handle self) { return nb::cast<OwnBatch&>(self); }

nb::object images(nb::handle self, bool numpy) {
  const OwnBatch& own = self_of(self);
  const SampleSpec& spec = own.source->output;
  const auto count = static_cast<std::size_t>(own.batch.count());
  const auto height = static_cast<std::size_t>(spec.size.height);
  const auto width = static_cast<std::size_t>(spec.size.width);
  const auto channels = static_cast<std::size_t>(spec.channels);
  std::vector<std::size_t> shape{count, channels, height, width};
  if (spec.layout == Layout::hwc) shape = {count, height, width, channels};
  return view(numpy, own.batch.data(), std::move(shape), type_of(spec.dtype), self);
}

nb::object class_ids(nb::handle self, bool numpy) {
  const Batch& batch = self_of(self).batch;
  return view(numpy, batch.labels(), {static_cast<std::size_t>(batch.count())},
              nb::dtype<std::int64_t>(), self);
}

nb::object probabilities(nb::handle self, bool numpy) {
  const Batch& batch = self_of(self).batch;
  if (batch.classes() == 0) return nb::none();
  return view(numpy, batch.probabilities(),
              {static_cast<std::size_t>(batch.count()), static_cast<std::size_t>(batch.classes())},
              nb::dtype<float>(), self);
}

nb::object samples(nb::handle self, bool numpy) {
  static_assert(sizeof(std::uint64_t) == sizeof(std::int64_t));  // indices lie far below 2^63
  const Batch& batch = self_of(self).batch;
  return view(numpy, batch.samples(), {static_cast<std::size_t>(batch.count())},
              nb::dtype<std::int64_t>(), self);
}

nb::object warps(nb::handle self, bool numpy) {
  const OwnBatch& own = self_of(self);
  if (own.warps.empty() && own.batch.count() > 0) return nb::none();
  return view(numpy, own.warps.data(), {static_cast<std::size_t>(own.batch.count()), 3, 3},
              nb::dtype<float>(), self);
}

/// Returns the numbers of numeric targets as an array of count x width, or count for plain numbers;
/// JSON texts as a list; None if the data set has no targets.
nb::object targets(nb::handle self, bool numpy) {
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
  std::vector<std::size_t> shape{count};
  if (all->width > 0) shape.push_back(all->width);
  const float* data = numbers->data();
  const nb::capsule owner(numbers.release(), [](void* memory) noexcept {
    delete static_cast<std::vector<float>*>(memory);
  });
  return view(numpy, data, std::move(shape), nb::dtype<float>(), owner);
}

std::vector<std::string> names(const OwnBatch& own) {
  std::vector<std::string> all;
  for (std::int64_t i = 0; i < own.batch.count(); ++i)
    all.push_back(own.source->reader->name(own.batch.samples()[i]));
  return all;
}

}  // namespace

void bind_batch(nb::module_& module) {
  nb::class_<OwnBatch>(module, "Batch")
      .def("images", &images, nb::arg("numpy"))
      .def("class_ids", &class_ids, nb::arg("numpy"))
      .def("probabilities", &probabilities, nb::arg("numpy"))
      .def("samples", &samples, nb::arg("numpy"))
      .def("warps", &warps, nb::arg("numpy"))
      .def("targets", &targets, nb::arg("numpy"))
      .def("names", &names)
      .def_prop_ro("count", [](const OwnBatch& own) { return own.batch.count(); })
      .def_prop_ro("epoch", [](const OwnBatch& own) { return own.batch.epoch(); })
      .def_prop_ro("index", [](const OwnBatch& own) { return own.batch.index(); });
}

}  // namespace millrace::python
