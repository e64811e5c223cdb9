// Instances of units, and guarded calls into them: what a plugin reports, or throws against the
// rules, becomes an Error that names it (plugin-safety contract).
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
#include "plugins/host/crash_report.h"

namespace millrace::plugins {

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

}  // namespace millrace::plugins
