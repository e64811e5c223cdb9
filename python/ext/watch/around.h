// Wraps a method of the watched script in calls before and after it.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace millrace::python {

/// Stands for a method of a class and calls a function before and one after it. It has no frame in
/// Python, so that warnings of the method name the line of its caller.
class Around {
 public:
  Around(nanobind::object before, nanobind::object method, nanobind::object after)
      : before_(std::move(before)), method_(std::move(method)), after_(std::move(after)) {}

  /// Passes what `before` returns on to `after`, and the method's error or None, unless it is None.
  nanobind::object call(const nanobind::args& given, const nanobind::kwargs& named) const {
    const nanobind::object state = before_(*given, **named);
    nanobind::object returned;
    try {
      returned = method_(*given, **named);
    } catch (const nanobind::python_error& error) {
      if (!state.is_none()) after_(state, error.value());
      throw;
    }
    if (!state.is_none()) after_(state, nanobind::none());
    return returned;
  }
  const nanobind::object& method() const { return method_; }

 private:
  nanobind::object before_, method_, after_;
};

}  // namespace millrace::python
