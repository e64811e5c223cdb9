// The module pymillrace._core: Engine, Batch, and millrace's errors as Python's exceptions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/text.h"
#include "millrace/error.h"
#include "millrace/recipe.h"
#include "python/ext/augmentation.h"
#include "python/ext/batch.h"
#include "python/ext/check.h"
#include "python/ext/engine.h"
#include "python/ext/gil.h"
#include "python/ext/host.h"
#include "python/ext/kept_interrupt.h"
#include "python/ext/order.h"
#include "python/ext/page_locked.h"
#include "recipe/key_hints.h"
#include "recipe/recipe_file.h"

namespace nb = nanobind;

namespace millrace::python {
namespace {

/// Commands of the program that the package has too, with the space that follows them.
constexpr std::string_view kCommands[] = {"bench ",   "inspect ", "data ",
                                          "plugins ", "report ",  "sweep "};

const char* class_of(Exit exit) {
  switch (exit) {
    case Exit::usage:
      return "UsageError";
    case Exit::data:
      return "DataError";
    case Exit::device:
      return "DeviceError";
    default:
      return "RunError";
  }
}

/// Returns a hint whose commands are those of this package: `millrace data index` becomes
/// `pymillrace data index`. Training has no command here.
std::string with_own_commands(std::string hint) {
  constexpr std::string_view kProgram = "millrace ";
  for (std::size_t at = hint.find(kProgram); at != std::string::npos;
       at = hint.find(kProgram, at + kProgram.size())) {
    const bool whole = at == 0 || hint[at - 1] == ' ' || hint[at - 1] == '`';
    const std::string_view rest = std::string_view(hint).substr(at + kProgram.size());
    const bool ours = std::any_of(std::begin(kCommands), std::end(kCommands),
                                  [&](std::string_view one) { return rest.starts_with(one); });
    if (!whole || !ours) continue;
    hint.insert(at, "py");
    at += 2;
  }
  return hint;
}

/// Raises an exception of pymillrace.errors. Owns its references by hand: see survive().
void raise(const char* kind, const std::string& what, const std::string& hint) {
  const auto text = [](const std::string& of) {  // names of files may be no UTF-8
    return PyUnicode_DecodeUTF8(of.data(), static_cast<Py_ssize_t>(of.size()), "backslashreplace");
  };
  PyObject* module = PyImport_ImportModule("pymillrace.errors");
  PyObject* type = module == nullptr ? nullptr : PyObject_GetAttrString(module, kind);
  PyObject* value =
      type == nullptr ? nullptr : PyObject_CallFunction(type, "NN", text(what), text(hint));
  if (value != nullptr) PyErr_SetObject(type, value);
  Py_XDECREF(value);
  Py_XDECREF(type);
  Py_XDECREF(module);
}

/// Raises an Error as the class of pymillrace.errors for its kind. A thread that the end of the
/// interpreter finds in a call gets SystemExit, which ends it in order and without a message.
void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    if (is_ending()) {
      PyErr_SetNone(PyExc_SystemExit);
      return;
    }
    const std::string what = e.what(), hint = with_own_commands(e.hint());
    survive([&] { raise(class_of(e.exit()), what, hint); });
  }
}

/// Epoch, position, sample, name, reason.
using FailureRow =
    std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, std::string, std::string>;

/// Returns the next batch, and appends samples that failed to `failures`, so that the caller need
/// not ask for them after every batch.
nb::object next(Engine& engine, nb::handle type, bool numpy,
                nb::typed<nb::list, FailureRow> failures) {
  std::shared_ptr<OwnBatch> batch = engine.next(numpy);
  for (Failure& one : engine.take_failures())
    failures.append(FailureRow(one.epoch, one.position, one.sample, std::move(one.name),
                               std::move(one.reason)));
  return make_batch(type, std::move(batch));
}

/// A stage, its ops, and its seconds per sample.
using CostRow = std::tuple<std::string, std::vector<std::string>, double>;

std::vector<CostRow> profile(Engine& engine, std::uint64_t samples) {
  std::vector<StepCost> costs;
  try {
    const ReleasedGil released;
    costs = engine.profile(samples);
  } catch (...) {
    raise_interrupt();
    throw;
  }
  std::vector<CostRow> rows;
  for (StepCost& cost : costs)
    rows.emplace_back(std::move(cost.what), std::move(cost.ops), cost.s_per_sample);
  return rows;
}

void make_engine(Engine* self, const std::vector<std::string>& arguments, int rank, int world,
                 bool warps, std::optional<std::vector<double>> weights, std::uintptr_t lock,
                 std::uintptr_t unlock, const nb::object& feed, bool ordered) {
  std::shared_ptr<pipeline::SlotMemory> memory;
  if (lock != 0) memory = page_locked_memory({lock, unlock});
  std::shared_ptr<const std::vector<double>> kept;
  if (weights) kept = std::make_shared<const std::vector<double>>(std::move(*weights));
  std::shared_ptr<Samples> samples;
  if (!feed.is_none()) samples = std::make_shared<Samples>(feed);
  try {
    const ReleasedGil released;
    new (self) Engine(arguments, rank, world, warps, std::move(kept), std::move(samples),
                      std::move(memory), ordered);
  } catch (...) {
    raise_interrupt();
    throw;
  }
}

/// Free-threaded interpreters lock the object itself during calls that change it.
void bind_engine(nb::module_& module) {
  nb::class_<Order>(module, "Order")
      .def(nb::init<std::uint64_t, std::uint64_t, std::uint64_t>(), nb::arg("samples"),
           nb::arg("epoch"), nb::arg("length"))
      .def("extend", &Order::extend, nb::arg("indices"))
      .def("digest", &Order::digest)
      .def_prop_ro("size", &Order::size);
  nb::class_<Engine>(module, "Engine")
      .def("__init__", &make_engine, nb::arg("arguments"), nb::arg("rank"), nb::arg("world"),
           nb::arg("warps") = false, nb::arg("weights") = nb::none(), nb::arg("lock") = 0,
           nb::arg("unlock") = 0, nb::arg("samples") = nb::none(), nb::arg("ordered") = false)
      .def("set_orders", &Engine::set_orders, nb::arg("epoch"), nb::arg("orders"), nb::lock_self())
      .def("seek", &Engine::seek, nb::arg("epoch"), nb::arg("batch"), nb::lock_self())
      .def("next", &next, nb::arg("type"), nb::arg("numpy"), nb::arg("failures"), nb::lock_self())
      .def("close", &Engine::close, nb::lock_self())
      .def("sample_name", &Engine::sample_name, nb::arg("index"), nb::call_guard<ReleasedGil>())
      .def("profile", &profile, nb::arg("samples"))
      .def("identity", &Engine::identity, nb::lock_self())
      .def("toml", &Engine::toml)
      .def_prop_ro("recipe_name", &Engine::recipe_name)
      .def("batches_of", &Engine::batches_of, nb::arg("samples"), nb::lock_self())
      .def_prop_ro("batches", &Engine::batches, nb::lock_self())
      .def_prop_ro("ahead", &Engine::ahead)
      .def_prop_ro("batch_size", &Engine::batch_size)
      .def_prop_ro("global_batch", &Engine::global_batch)
      .def_prop_ro("workers", [](const Engine& e) { return e.options().workers; })
      .def_prop_ro("drop_last", [](const Engine& e) { return e.options().drop_last; })
      .def_prop_ro("dtype", [](const Engine& e) { return std::string(name_of(e.output().dtype)); })
      .def_prop_ro("samples", [](const Engine& e) { return e.dataset().count; })
      .def_prop_ro("path", [](const Engine& e) { return e.dataset().path; })
      .def_prop_ro("split", [](const Engine& e) { return e.dataset().split; })
      .def_prop_ro("classes", [](const Engine& e) { return e.dataset().classes; })
      .def_prop_ro("fingerprint", [](const Engine& e) { return e.dataset().fingerprint; })
      .def_prop_ro("names", [](const Engine& e) { return Names{e.source()}; })
      .def_prop_ro(
          "extra_blocks", [](const Engine& e) { return e.stats().extra_blocks; }, nb::lock_self());
}

/// Returns what to write instead of a key or option that no loader has.
std::string hint_for_key(const std::string& name) {
  const std::lock_guard lock(registry_lock());
  std::vector<std::string> names;
  for (const Param& key : recipe_keys())
    if (key.name.find('.') != std::string::npos) names.push_back(key.name);
  return recipe::hint_for_key(name, names);
}

}  // namespace
}  // namespace millrace::python

NB_MODULE(_core, module) {
  using namespace millrace;
  nb::set_leak_warnings(false);  // a loader that a script's cycle keeps until exit is no defect
  nb::register_exception_translator(&python::translate);
  python::bind_batch(module);
  python::bind_engine(module);
  python::bind_augmentation(module);
  python::bind_check(module);
  python::bind_gil(module);
  module.def(
      "printable",
      [](const nb::bytes& text) {
        return base::printable({text.c_str(), text.size()});
      },
      nb::arg("text"));
  module.def("is_override", [](const std::string& word) { return recipe::is_override(word); });
  module.def(
      "find_recipe",
      [](const std::string& word, const std::string& folder) {
        const std::filesystem::path folders[] = {folder};
        return recipe::find_recipe(word, folders).string();
      },
      nb::arg("word"), nb::arg("folder"));
  module.def("hint_for_key", &python::hint_for_key, nb::arg("name"));
  module.def("take_remarks", &python::take_remarks);
}
