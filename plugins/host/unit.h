// A unit's instance, and calls into it: what a plugin reports, or throws against the rules, becomes
// an Error that names it (plugin-safety contract).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/error.h"
#include "millrace/millrace.h"
#include "millrace/param.h"
#include "millrace/recipe.h"
#include "plugins/host/inside.h"

namespace millrace::plugins {

/// The host's form of a declaration; throws UsageError where it contradicts itself.
Param to_param(const millrace_param& param);
/// The unit's i-th parameter; a newer plugin's are longer than this host's.
const millrace_param& param_of(const millrace_unit& unit, std::size_t i);
/// What a recipe must know of the unit.
OpDeclaration to_declaration(const millrace_unit& unit);

/// What a call needs besides its arguments. One a thread, used again and again.
class CallContext {
 public:
  CallContext();
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;

  millrace_call call{};

 private:
  std::array<char, 512> error_{};
};

/// Throws what `status` stands for, with the lines in `error`, behind the unit's name.
[[noreturn]] void throw_status(const std::string& unit, millrace_status status, const char* error);

/// Within a catch block: throws the exception that left a function of the plugin's as an Error.
/// `function`: what the interface calls it, or empty.
[[noreturn]] void throw_exception(const millrace_unit& unit, const char* function = "");

/// Runs `function`, which calls into the plugin. An exception becomes a DataError.
template <class Function>
auto guarded_call(const millrace_unit& unit, const Function& function) {
  const InsideUnit inside(unit);
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

/// Runs `function`, the plugin's `name`, where nothing may be thrown. An exception is kept for
/// throw_late_exception().
void last_call(const millrace_unit& unit, const char* name,
               const std::function<void()>& function) noexcept;
/// Throws a DataError for the first exception that last_call() has kept, if there is one.
void throw_late_exception();

/// An instance: immutable, shared by all threads.
class Unit {
 public:
  /// Throws UsageError for parameters that don't fit together. `path` and `split` are for readers,
  /// output.mean and output.std for augmentations. `depth`: how many choices it lies within.
  Unit(const millrace_unit& unit, const Params& params, const std::string& path = {},
       const std::string& split = {}, std::span<const double> mean = {},
       std::span<const double> std = {}, int depth = 0);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const millrace_unit& table() const { return unit_; }
  const void* self() const { return self_; }
  /// Of a choice, in the order in which it asked for them.
  const std::vector<std::unique_ptr<Unit>>& children() const { return children_; }
  /// How a choice asked for this child: "posterize{bits=4}".
  const std::string& text() const { return text_; }

 private:
  static constexpr int kDeepest = 16;  ///< choices within each other; each takes stack

  static std::int32_t add_child(const millrace_create* create, const char* text);

  const millrace_unit& unit_;
  void* self_ = nullptr;
  std::string text_;
  int depth_;
  std::vector<std::unique_ptr<Unit>> children_;
};

}  // namespace millrace::plugins
