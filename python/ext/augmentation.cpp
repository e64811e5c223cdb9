// Builds the tables of Python functions, and calls the functions on pixels.
#include "python/ext/augmentation.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "millrace/error.h"
#include "millrace/millrace.h"
#include "millrace/recipe.h"
#include "plugins/host/registry.h"
#include "python/ext/gil.h"
#include "python/ext/interrupt.h"
#include "python/ext/kept_interrupt.h"
#include "python/ext/memory_view.h"
#include "python/ext/pcg64.h"

namespace nb = nanobind;

namespace millrace::python {
namespace {

/// A function that Numba has compiled. Returns one of the next three; `pcg64`: state of NumPy's
/// generator.
using Compiled = std::int32_t (*)(std::uint8_t* pixels, std::int64_t height, std::int64_t width,
                                  std::int64_t channels, void* pcg64);
constexpr std::int32_t kDone = 0, kRaised = 1, kOtherShape = 2;

/// The augmentation of a name. Never destroyed, as plans keep it.
struct Definition {
  PyObject* caller;   ///< references are kept
  Compiled compiled;  ///< null: the caller is called, with Python's lock
};

/// One Python function under its name. Never destroyed: tables are constant, and threads that are
/// left behind at the end of the process may still use it.
struct Function {
  std::string name, help;
  std::atomic<const Definition*> definition{nullptr};  ///< the latest
  std::atomic<std::uint64_t> calls{0}, ns{0}, waited_ns{0};
  millrace_param param{};
  millrace_pixel pixel{};
  millrace_unit unit{};
  const millrace_unit* units[1] = {&unit};
  std::string id;
  millrace_plugin_table table{};
  Function* next = nullptr;  ///< one that was defined before
};

/// An instance of the unit: a plan keeps the definition that it was made with.
struct Instance {
  Function* function;
  const Definition* definition;
};

/// The latest of the functions, to which define() adds one under registry_lock(). Read without it.
std::atomic<Function*> g_functions{nullptr};

/// Returns the function of a name, or null.
Function* find(std::string_view name) {
  Function* function = g_functions;
  while (function != nullptr && function->name != name) function = function->next;
  return function;
}

/// Writes UTF-8, cut between two characters if it is too long.
void write_error(millrace_call& call, const char* text) {
  const auto size =
      static_cast<std::size_t>(std::max(0, std::snprintf(call.error, call.error_size, "%s", text)));
  if (size < call.error_size || call.error_size == 0) return;
  std::size_t end = call.error_size - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  call.error[end] = '\0';
}

/// Describes the exception that left the caller, or keeps it for raise_interrupt().
void write_exception(millrace_call& call, const std::string& name) {
  if (keep_interrupt()) {
    write_error(call, fmt::format("{}: interrupted", name).c_str());
    return;
  }
  PyErr_Clear();  // memory is short, or the interpreter is ending
  write_error(call, fmt::format("{}: the function cannot be called", name).c_str());
}

/// Calls the function with the pixels. Runs with Python's lock.
millrace_status call_function(const Instance& self, std::uint8_t* pixels,
                              const millrace_image& image, const std::array<std::uint32_t, 4>& seed,
                              millrace_call& call) {
  const auto size = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height) *
                    static_cast<std::size_t>(image.channels);
  const auto word = [&](std::size_t i) {
    return static_cast<unsigned long long>(seed[i]) << 32 | seed[i + 1];
  };
  PyObject* memory = memory_view(pixels, size);
  PyObject* text = memory == nullptr ? nullptr
                                     : PyObject_CallFunction(self.definition->caller, "OiiiKK",
                                                             memory, image.height, image.width,
                                                             image.channels, word(0), word(2));
  millrace_status status = MILLRACE_BAD_DATA;
  if (text == nullptr) {
    write_exception(call, self.function->name);
  } else if (text == Py_None) {
    status = MILLRACE_OK;
  } else {
    Py_ssize_t length = 0;
    const char* utf8 = PyUnicode_AsUTF8AndSize(text, &length);
    if (utf8 == nullptr) PyErr_Clear();
    write_error(call, utf8 != nullptr ? utf8 : "the function failed");
  }
  Py_XDECREF(text);
  Py_XDECREF(memory);
  return status;
}

/// Takes Python's lock and calls the function, unless the interpreter is ending.
millrace_status apply_locked(const Instance& self, std::uint8_t* pixels,
                             const millrace_image& image, const std::array<std::uint32_t, 4>& seed,
                             millrace_call& call) {
  const std::int64_t asked = base::Clock::steady_ns();
  Function& function = *self.function;
  const HeldGil gil;
  if (!gil) {
    write_error(call, fmt::format("{}: the interpreter is ending", function.name).c_str());
    return MILLRACE_BAD_DATA;
  }
  const std::int64_t begin = base::Clock::steady_ns();
  const millrace_status status =
      survive([&] { return call_function(self, pixels, image, seed, call); });
  const std::int64_t end = base::Clock::steady_ns();
  function.calls.fetch_add(1, std::memory_order_relaxed);
  function.ns.fetch_add(static_cast<std::uint64_t>(end - begin), std::memory_order_relaxed);
  function.waited_ns.fetch_add(static_cast<std::uint64_t>(begin - asked),
                               std::memory_order_relaxed);
  return status;
}

/// Calls the compiled function, without Python's lock.
millrace_status apply_compiled(const Instance& self, std::uint8_t* pixels,
                               const millrace_image& image,
                               const std::array<std::uint32_t, 4>& seed, millrace_call& call) {
  const std::int64_t begin = base::Clock::steady_ns();
  Function& function = *self.function;
  Pcg64 generator({seed[3], seed[2], seed[1], seed[0]});
  const std::int32_t found = self.definition->compiled(pixels, image.height, image.width,
                                                       image.channels, generator.state());
  function.calls.fetch_add(1, std::memory_order_relaxed);
  function.ns.fetch_add(static_cast<std::uint64_t>(base::Clock::steady_ns() - begin),
                        std::memory_order_relaxed);
  if (found == kDone) return MILLRACE_OK;
  write_error(call,
              found == kRaised
                  ? fmt::format("{}: the compiled function raised an exception\nfind it without "
                                "compile=True, or leave such samples out: loader.on_error=skip",
                                function.name)
                        .c_str()
                  : fmt::format("{}: it returned an image of another shape than {}x{}x{}\nreturn "
                                "an image like the one it got, or nothing after changing that",
                                function.name, image.height, image.width, image.channels)
                        .c_str());
  return MILLRACE_BAD_DATA;
}

/// Applies the unit.
millrace_status apply(const void* instance, const millrace_image* image, millrace_call* call) {
  const auto& self = *static_cast<const Instance*>(instance);
  if (has_interrupt() || (t_stop != nullptr && *t_stop)) {  // the batch is given up
    write_error(*call, fmt::format("{}: interrupted", self.function->name).c_str());
    return MILLRACE_BAD_DATA;
  }
  std::array<std::uint32_t, 4> seed;
  for (std::uint32_t& word : seed) word = millrace_rng_bits(&call->rng);
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(image->width) * image->channels;
  std::vector<std::uint8_t> dense;
  std::uint8_t* pixels = image->data;
  if (image->row != row) {
    dense.resize(static_cast<std::size_t>(row) * static_cast<std::size_t>(image->height));
    pixels = dense.data();
    for (int y = 0; y < image->height; ++y)
      std::memcpy(pixels + y * row, image->data + y * image->row, static_cast<std::size_t>(row));
  }
  const auto run = self.definition->compiled != nullptr ? &apply_compiled : &apply_locked;
  const millrace_status status = run(self, pixels, *image, seed, *call);
  if (image->row != row && status == MILLRACE_OK)
    for (int y = 0; y < image->height; ++y)
      std::memcpy(image->data + y * image->row, pixels + y * row, static_cast<std::size_t>(row));
  return status;
}

/// Makes an instance of the function that the only parameter names.
millrace_status create(const millrace_create* create, void** self) {
  Function* function = find(create->values[0].text);
  *self = new Instance{function, function->definition.load()};
  return MILLRACE_OK;
}

void destroy(void* self) { delete static_cast<Instance*>(self); }

/// Fills the tables of a new function.
void describe(Function& function, bool global, bool random) {
  function.id = "python_" + function.name;
  // The interface tells create() the values of parameters, and nothing else, so the name is one.
  function.param = {"function", "the Python function", MILLRACE_CHOICE, 0, function.name.c_str(), 0,
                    0,          function.name.c_str()};
  function.pixel.struct_size = sizeof(millrace_pixel);
  function.pixel.reach = static_cast<std::int32_t>(global ? MILLRACE_GLOBAL : MILLRACE_POINTWISE);
  function.pixel.apply = &apply;
  function.unit.struct_size = sizeof(millrace_unit);
  function.unit.name = function.name.c_str();
  function.unit.help = function.help.c_str();
  function.unit.random = random ? 1 : 0;
  function.unit.params = &function.param;
  function.unit.param_count = 1;
  function.unit.param_size = sizeof(millrace_param);
  function.unit.create = &create;
  function.unit.destroy = &destroy;
  function.unit.pixel = &function.pixel;
  function.table = {MILLRACE_MAGIC,
                    MILLRACE_ABI_MAJOR,
                    MILLRACE_ABI_MINOR,
                    sizeof(millrace_plugin_table),
                    function.id.c_str(),
                    "1",
                    "Python",
                    function.units,
                    1};
}

/// Registers a function, or replaces it for loaders that are made from now on. `compiled`: address
/// of a Compiled function that lasts as long as the process; 0: it is not compiled.
void define(const std::string& name, const std::string& help, bool global, bool random,
            nb::object caller, std::uintptr_t compiled) {
  const auto* kept = new Definition{caller.release().ptr(), reinterpret_cast<Compiled>(compiled)};
  const ReleasedGil released;
  const std::lock_guard lock(registry_lock());
  if (Function* known = find(name); known != nullptr) {
    const bool same =
        (known->pixel.reach == MILLRACE_GLOBAL) == global && (known->unit.random != 0) == random;
    if (!same)
      throw UsageError(
          fmt::format("augmentation {} was defined with another reach or other arguments", name),
          "give it another name: @mr.augmentation(name=\"...\")");
    known->definition.store(kept);
    return;
  }
  for (const OpDeclaration& op : op_declarations())
    if (op.name == name)
      throw UsageError(fmt::format("augmentation {} already exists", name),
                       "give it another name: @mr.augmentation(name=\"...\")");
  auto* function = new Function;
  function->name = name;
  function->help = help;
  function->definition.store(kept);
  describe(*function, global, random);
  plugins::add_table(function->table, "Python");
  function->next = g_functions;
  g_functions = function;
}

/// Returns calls, seconds in the function, and seconds of waiting for Python's lock.
std::tuple<std::uint64_t, double, double> counts(const std::string& name) {
  const Function& function = *find(name);
  return {function.calls.load(), static_cast<double>(function.ns.load()) * 1e-9,
          static_cast<double>(function.waited_ns.load()) * 1e-9};
}

}  // namespace

std::mutex& registry_lock() {
  alignas(std::mutex) static unsigned char memory[sizeof(std::mutex)];
  static auto* lock = [] {
    auto* made = new (memory) std::mutex;
    // The thread that holds it while another one forks does not exist in the child.
    pthread_atfork(nullptr, nullptr, [] { new (memory) std::mutex; });
    return made;
  }();
  return *lock;
}

const millrace_unit* unit_of(const std::string& name) {
  const Function* function = find(name);
  return function == nullptr ? nullptr : &function->unit;
}

void bind_augmentation(nb::module_& module) {
  module.def("define_augmentation", &define, nb::arg("name"), nb::arg("help"), nb::arg("global_"),
             nb::arg("random"), nb::arg("caller"), nb::arg("compiled"));
  module.def("augmentation_counts", &counts, nb::arg("name"));
}

}  // namespace millrace::python
