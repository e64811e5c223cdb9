// The recorder's lock, which free-threaded interpreters need.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace millrace::python {

/// Held by each call of the recorder under a free-threaded interpreter, and nothing elsewhere,
/// where the interpreter's lock (GIL) does the same. Like that, it is let go while the call waits
/// in Python, as for a lock or in a function that sleeps.
class RecorderLock {
 public:
  RecorderLock() : guard_(*object) {}

  /// The object whose lock it is: set as soon as the module is made, and kept for good.
  static inline const nanobind::object* object = nullptr;

 private:
  nanobind::ft_object_guard guard_;
};

/// A bound class whose methods hold the RecorderLock.
template <class T, class... Options>
class RecorderClass : public nanobind::class_<T, Options...> {
  using Base = nanobind::class_<T, Options...>;
  using Held = nanobind::call_guard<RecorderLock>;

 public:
  using Base::Base;

  template <class... Given>
  RecorderClass& def(Given&&... given) {
    Base::def(std::forward<Given>(given)..., Held());
    return *this;
  }
  template <class... Given>
  RecorderClass& def_ro(Given&&... given) {
    Base::def_ro(std::forward<Given>(given)..., Held());
    return *this;
  }
  template <class... Given>
  RecorderClass& def_rw(Given&&... given) {
    Base::def_rw(std::forward<Given>(given)..., Held());
    return *this;
  }
  template <class Get, class Set, class... Given>
  RecorderClass& def_prop_rw(const char* name, Get&& get, Set&& set, Given&&... given) {
    Base::def_prop_rw(name, std::forward<Get>(get), std::forward<Set>(set),
                      nanobind::for_getter(Held()), nanobind::for_setter(Held()),
                      std::forward<Given>(given)...);
    return *this;
  }
  template <class... Given>
  RecorderClass& def_prop_ro(Given&&... given) {
    Base::def_prop_ro(std::forward<Given>(given)..., Held());
    return *this;
  }
};

}  // namespace millrace::python
