// Instances of units, guarded calls into them, and the name that a crash is reported with.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/private_api.h"
#include "millrace/error.h"
#include "millrace/millrace.h"
#include "millrace/param.h"
#include "millrace/recipe.h"

namespace millrace::plugins {

// Records which unit a thread is executing, so that a crash or an exit() there is reported with the
// names of the plugin and its unit (plugin-safety contract).

/// The unit or plugin whose code this thread runs. Plain memory, read by signal handlers.
struct PluginContext {
  const millrace_unit* unit = nullptr;
  const char* loading = nullptr;  ///< a plugin's file, while its initialisers run
  bool has_stack = false;         ///< this thread has a stack for signals
};
// Lies in the thread's initial TLS block, because a handler may not allocate.
extern constinit thread_local PluginContext t_plugin_context
    __attribute__((tls_model("initial-exec")));

/// Gives signals on this thread a stack of their own, in case a unit uses up the thread's stack.
void make_signal_stack();

/// Marks this thread as executing a unit, as long as the mark lives.
class UnitScope {
 public:
  explicit UnitScope(const millrace_unit& unit) : outer_(t_plugin_context.unit) {
    if (!t_plugin_context.has_stack) make_signal_stack();
    t_plugin_context.unit = &unit;
  }
  ~UnitScope() { t_plugin_context.unit = outer_; }
  UnitScope(const UnitScope&) = delete;
  UnitScope& operator=(const UnitScope&) = delete;

 private:
  const millrace_unit* outer_;
};

/// Marks this thread as loading a plugin, as long as the mark lives.
class LoadingScope {
 public:
  explicit LoadingScope(const char* file);
  ~LoadingScope() { t_plugin_context.loading = nullptr; }
  LoadingScope(const LoadingScope&) = delete;
  LoadingScope& operator=(const LoadingScope&) = delete;
};

/// Records which file a plugin's units come from, until the process ends.
void remember_plugin(const millrace_plugin_table& table, const char* file);
/// Returns the file that a unit comes from, or "" for a built-in one. Safe in a signal handler.
const char* file_of(const millrace_unit& unit);

/// Returns ": TEXT" with the first line of the exception being handled, or "" if it has no text.
std::string thrown_text();

/// Installs handlers that report crashes of plugins. SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT
/// inside a unit, or while a plugin is loaded, write one line to stderr before their previous
/// action. An exit() there, and an exception that nothing catches, write such a line and end with
/// exit code 3. A fault in a mapped data file is blamed on the data and never on a plugin. Call it
/// from programs only: a library must not change a process's signals.
MILLRACE_PRIVATE_API void install_crash_handlers();
/// Restores the previous handlers, in a child process that installs its own.
MILLRACE_PRIVATE_API void restore_crash_handlers();

// Instances of units, and guarded calls into them: what a plugin reports, or throws against the
// rules, becomes an Error that names it (plugin-safety contract).

/// Converts a plugin's declaration. Throws UsageError if it contradicts itself.
MILLRACE_PRIVATE_API Param to_param(const millrace_param& param);
/// Returns the unit's i-th parameter; a newer plugin's structs may be longer than this host's.
MILLRACE_PRIVATE_API const millrace_param& param_of(const millrace_unit& unit, std::size_t i);
/// Returns the unit's declaration, against which recipes are checked.
MILLRACE_PRIVATE_API OpDeclaration to_declaration(const millrace_unit& unit);

/// Host side of a call: buffers besides the arguments. One per thread, reused.
class MILLRACE_PRIVATE_API CallContext {
 public:
  CallContext();
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;

  millrace_call call{};

 private:
  std::array<char, 512> error_{};
};

/// Throws the error that `status` stands for, with the lines in `error` behind the unit's name.
[[noreturn]] void throw_status(const std::string& unit, millrace_status status, const char* error);

/// Called in a catch block: throws the exception that left a plugin's function as an Error.
/// `function` is its name in the interface, or empty.
[[noreturn]] void throw_exception(const millrace_unit& unit, const char* function = "");

/// Runs `function`, which calls into the plugin. Turns an exception into a DataError.
template <class Function>
auto guarded_call(const millrace_unit& unit, const Function& function) {
  const UnitScope inside(unit);
  try {
    return function();
  } catch (...) {
    throw_exception(unit);
  }
}

/// Runs `function`, which returns a status, and turns anything but success into an Error.
template <class Function>
void checked_call(const millrace_unit& unit, millrace_call& call, const Function& function) {
  call.error[0] = '\0';
  const millrace_status status = guarded_call(unit, function);
  if (status != MILLRACE_OK) throw_status(unit.name, status, call.error);
}

/// Runs `function`, the plugin's `name`, in a place that must not throw. Keeps an exception for
/// throw_late_exception().
void last_call(const millrace_unit& unit, const char* name,
               const std::function<void()>& function) noexcept;
/// Throws a DataError for the first exception that last_call() has kept, if any.
MILLRACE_PRIVATE_API void throw_late_exception();

/// Returns the number of samples that a batch unit takes together, or MILLRACE_WHOLE_BATCH. A table
/// of interface 1.0, which has no such member, takes two.
MILLRACE_PRIVATE_API std::int32_t group_of(const millrace_unit& unit);

using FloatsFunction = decltype(millrace_pixel::apply_floats);
/// Returns apply_floats(), which came with interface 1.3, or null.
MILLRACE_PRIVATE_API FloatsFunction floats_of(const millrace_pixel& pixel);

using MixFunction = decltype(millrace_batch::mix);
using PartsFunction = decltype(millrace_batch::parts);
/// Returns mix(), which came with interface 1.1, or null.
MixFunction mix_of(const millrace_batch& batch);
/// Returns parts(), which came with interface 1.2, or null.
MILLRACE_PRIVATE_API PartsFunction parts_of(const millrace_batch& batch);
/// Returns whether a batch unit changes samples itself, by pair() or mix().
MILLRACE_PRIVATE_API bool changes_samples(const millrace_batch& batch);

/// An instance of a unit: immutable, shared by all threads.
class MILLRACE_PRIVATE_API Unit {
 public:
  /// Makes the instance. `path` and `split` are for readers, output.mean and output.std for
  /// augmentations, `depth` is the number of enclosing choices. Throws UsageError for parameters
  /// that do not fit together.
  Unit(const millrace_unit& unit, const Params& params, const std::string& path = {},
       const std::string& split = {}, std::span<const double> mean = {},
       std::span<const double> std = {}, int depth = 0);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const millrace_unit& table() const { return unit_; }
  const void* self() const { return self_; }
  /// Returns a choice's children, in the order in which it created them.
  const std::vector<std::unique_ptr<Unit>>& children() const { return children_; }
  /// Returns the text with which a choice created this child: "posterize{bits=4}".
  const std::string& text() const { return text_; }

 private:
  static constexpr int kDeepest = 16;  ///< limit on nested choices, each of which takes stack

  static std::int32_t add_child(const millrace_create* create, const char* text);

  const millrace_unit& unit_;
  void* self_ = nullptr;
  std::string text_;
  int depth_;
  std::vector<std::unique_ptr<Unit>> children_;
};

/// Calls a batch unit's mix(), or its pair() with the first two samples. Runs inside
/// checked_call().
MILLRACE_PRIVATE_API millrace_status mix_group(const Unit& unit, const millrace_sample& sample,
                                               void* const* samples, float* const* labels,
                                               std::size_t count, millrace_call& call);

/// Calls a batch unit's parts() for a group of `samples` samples, and returns the number of parts
/// that it wrote to `parts`, which has room for MILLRACE_MOST_PARTS per sample. Throws DataError
/// for parts that break the rules of millrace.h.
MILLRACE_PRIVATE_API std::size_t write_parts(const Unit& unit, const millrace_sample& sample,
                                             std::size_t samples, std::span<millrace_part> parts,
                                             millrace_call& call);

}  // namespace millrace::plugins
