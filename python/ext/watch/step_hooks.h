// Hooks that mark a watched loop's forward, its optimizer's steps, and its waits for other threads.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "measure/data_loader/clock.h"
#include "measure/data_loader/loop_timeline.h"

namespace millrace::python {

/// Hooks of torch and of iterators, for one thread of a session. They do nothing elsewhere.
class StepHooks {
 public:
  explicit StepHooks(std::int64_t now) : timeline(std::make_shared<measure::LoopTimeline>(now)) {}

  bool is_open() const { return open && (whole == nullptr || whole->open); }
  bool takes_part() const { return is_open() && PyThread_get_thread_ident() == thread; }

  /// Hook of modules, which removes itself: a global hook slows every module's call down.
  void before_forward(const nanobind::args& given, const nanobind::kwargs&) {
    if (!begins()) return;
    if (open) note_mode(given);
    disarm();
  }
  /// Called ahead of torch's _maybe_set_eval_frame, which a function that torch compiles calls with
  /// a callback when it begins. The hook of modules must be gone by then: torch would compile it
  /// too.
  void before_compiled(nanobind::handle callback) {
    if (callback.is_none() || !begins()) return;
    evaluates = false;  // not known
    disarm();
  }
  void before_step(const nanobind::args&) {
    if (takes_part()) timeline->step_begins(measure::wall_ns());
  }
  void after_step(const nanobind::args&) {
    if (!takes_part()) {
      if (is_open() && !on_step_elsewhere.is_none()) on_step_elsewhere();
      return;
    }
    timeline->step_ended(measure::wall_ns());
    if (!on_step.is_none()) on_step();
  }
  /// Goes on in the calling thread, with a timeline of its own. Returns hooks of the thread so far,
  /// with its timeline.
  std::shared_ptr<StepHooks> leave_thread() {
    const std::int64_t now = measure::wall_ns();
    auto left = std::make_shared<StepHooks>(now);
    left->timeline.swap(timeline);
    left->thread = std::exchange(thread, PyThread_get_thread_ident());
    left->open = open;
    return left;
  }
  /// Called ahead of threading.Condition.wait, and after it with what this has returned: when the
  /// thread began to wait for another one, as for a queue. None elsewhere.
  std::optional<std::int64_t> before_wait(const nanobind::args&, const nanobind::kwargs&) const {
    if (!takes_part() || timeline->front() != nullptr) return std::nullopt;
    return measure::wall_ns();
  }
  void after_wait(std::int64_t began, nanobind::handle) {
    if (takes_part() && timeline->front() == nullptr) waited += measure::wall_ns() - began;
  }
  /// Has names[key] be `hook` while the next forward is awaited. Otherwise it is `plain`, or absent
  /// without it.
  void put_while_armed(nanobind::object names, nanobind::object key, nanobind::object hook,
                       nanobind::object plain) {
    places_.push_back({std::move(names), std::move(key), std::move(hook), std::move(plain)});
    if (armed_) places_.back().set(places_.back().hook);
  }
  /// Waits for the next forward.
  void arm() {
    for (const Place& one : places_) one.set(one.hook);
    armed_ = !places_.empty();
  }
  void disarm() {
    armed_ = false;
    for (const Place& one : places_) one.set(one.plain);
  }
  /// Waits for no forward any more.
  void remove() {
    if (armed_) disarm();
    places_.clear();
  }

  std::shared_ptr<measure::LoopTimeline> timeline;
  std::shared_ptr<StepHooks>
      whole;  ///< of a loader that another thread iterates over: that of the run
  unsigned long thread = 0;
  std::int64_t waited = 0;  ///< between loaders, for other threads
  bool open = false;
  bool evaluates = false;                       ///< the latest module was in evaluation mode
  bool computes = false;                        ///< a module has been called in the thread
  nanobind::object on_step = nanobind::none();  ///< called after a step of an optimizer
  nanobind::object on_step_elsewhere = nanobind::none();  ///< likewise, in another thread

 private:
  struct Place {
    nanobind::object names, key, hook, plain;

    void set(const nanobind::object& value) const {
      if (!value.is_none()) {
        if (PyObject_SetItem(names.ptr(), key.ptr(), value.ptr()) != 0)
          throw nanobind::python_error();
      } else if (PyObject_DelItem(names.ptr(), key.ptr()) != 0) {
        PyErr_Clear();  // somebody else has removed it
      }
    }
  };

  /// Notes the first forward. Returns false where none is awaited, or in another thread.
  bool begins() {
    if (!armed_ || (open && !takes_part())) return false;
    if (open) {
      computes = true;
      timeline->forward(measure::wall_ns());
    }
    return true;
  }
  /// Reads the mode of a hook's module.
  void note_mode(const nanobind::args& given) {
    if (given.size() == 0) return;
    PyObject* const training = PyObject_GetAttrString(given[0].ptr(), "training");
    if (training == nullptr) PyErr_Clear();
    evaluates = training == Py_False;
    Py_XDECREF(training);
  }

  std::vector<Place> places_;
  bool armed_ = false;
};

}  // namespace millrace::python
