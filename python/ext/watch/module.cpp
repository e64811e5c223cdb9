// The module pymillrace._watch: what Python sees of the part of watching that runs once per step
// and per batch (measure/data_loader).
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "measure/data_loader/breakdown.h"
#include "measure/data_loader/clock.h"
#include "measure/data_loader/lock_watch.h"
#include "measure/data_loader/loop_timeline.h"
#include "measure/data_loader/probes.h"
#include "measure/data_loader/record_ring.h"
#include "measure/data_loader/steps.h"
#include "measure/data_loader/threads.h"
#include "predict/rules.h"

namespace nb = nanobind;

namespace millrace::python {
namespace {

using namespace measure;

constexpr auto kSchedstat = "/proc/thread-self/schedstat";

using Times = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

/// Epoch, batch and worker; begin, collate and end; begin and end of sending.
using Made = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                        std::int64_t, std::int64_t, std::int64_t>;

Times times_of(const Reading& reading) { return {reading.wall, reading.cpu, reading.delay}; }

/// Returns the fields of a WorkerRecord, from a tuple of them and of the transforms' times.
WorkerRecord record_of(const nb::tuple& fields) {
  std::array<std::int64_t, kRecordFields> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = nb::cast<std::int64_t>(nb::handle(fields[i]));
  WorkerRecord record;
  std::memcpy(&record, numbers.data(), sizeof(record));
  return record;
}

BatchWait wait_of(const nb::tuple& fields) {
  const auto field = [&](std::size_t i) { return nb::cast<std::int64_t>(nb::handle(fields[i])); };
  return {field(0), field(1), field(2), field(3), field(4), field(5), field(6), field(7), field(8)};
}

/// Returns what a call of Python's C interface has returned. Throws if that is null for an error.
nb::object checked(PyObject* returned) {
  if (returned == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
  return nb::steal(returned);
}

Py_ssize_t size_of(nb::handle data) {
  const Py_ssize_t size = PyObject_Size(data.ptr());
  if (size < 0) throw nb::python_error();
  return size;
}

/// Returns the attribute "shape", or null.
nb::object shape_of(nb::handle data) {
  PyObject* const shape = PyObject_GetAttrString(data.ptr(), "shape");
  if (shape == nullptr && PyErr_ExceptionMatches(PyExc_AttributeError) != 0) PyErr_Clear();
  return checked(shape);
}

/// Returns the number of a batch from the tuple in which torch sends it, or kUnknown.
std::int64_t batch_of(nb::handle task) {
  PyObject* const one = task.ptr();
  if (!PyTuple_Check(one) || PyTuple_Size(one) != 2) return kUnknown;
  PyObject* const number = PyTuple_GetItem(one, 0);
  if (!PyLong_CheckExact(number)) return kUnknown;
  int overflow = 0;
  const long long batch = PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow == 0 && 0 <= batch && batch < 1LL << 62 ? batch : kUnknown;
}

/// Returns the number of samples that a batch is asked to have; 1 where samples are not batched.
std::int64_t samples_at(nb::handle index) {
  const Py_ssize_t size = PyObject_Size(index.ptr());
  if (size >= 0) return size;
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return 1;
}

/// Returns collections.abc.Mapping, looked up once and kept for good.
const nb::object& mapping() {
  static const nb::object* found = nullptr;  // a local static's own lock could wait for the GIL
  if (found == nullptr)
    found = new nb::object(nb::module_::import_("collections.abc").attr("Mapping"));
  return *found;
}

bool is_scalar(nb::handle data) {
  PyObject* const one = data.ptr();
  return one == Py_None || PyUnicode_Check(one) || PyBytes_Check(one) || PyLong_Check(one) ||
         PyFloat_Check(one);
}

/// Returns the first value of a mapping or the first element of a list or tuple; null if there is
/// none.
nb::object first_of(nb::handle data) {
  if (PyDict_Check(data.ptr())) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    if (PyDict_Next(data.ptr(), &at, &key, &value) == 0) return {};
    return nb::borrow(value);
  }
  if (!PyList_Check(data.ptr()) && !PyTuple_Check(data.ptr())) {
    if (!nb::isinstance(data, mapping())) return {};
    const nb::object values = checked(PyObject_GetIter(nb::object(data.attr("values")()).ptr()));
    return checked(PyIter_Next(values.ptr()));
  }
  if (size_of(data) <= 0) return {};
  return checked(PySequence_GetItem(data.ptr(), 0));
}

/// Returns the number of samples of a batch: the length of its first array; 0 if there is none.
std::int64_t samples_in(nb::handle batch) {
  nb::object data = nb::borrow(batch);
  for (int depth = 0; depth < 8; ++depth) {
    if (is_scalar(data)) return 0;
    if (!PyDict_Check(data.ptr()) && !PyList_Check(data.ptr()) && !PyTuple_Check(data.ptr())) {
      const nb::object shape = shape_of(data);
      if (shape.is_valid() && !shape.is_none())
        return size_of(shape) > 0 ? nb::cast<std::int64_t>(nb::object(shape[0])) : 0;
    }
    data = first_of(data);
    if (!data.is_valid()) return 0;
  }
  return 0;
}

/// Returns pymillrace.watcher.faults, looked up once and kept for good.
const nb::object& faults() {
  static const nb::object* found = nullptr;  // a local static's own lock could wait for the GIL
  if (found == nullptr) found = new nb::object(nb::module_::import_("pymillrace.watcher.faults"));
  return *found;
}

/// Returns 0 also for a batch that does not tell, such as a nested tensor: the watched loop goes
/// on. Throws what a handler of a signal raised that happened to run here, as at the death of a
/// worker.
std::int64_t samples_or_none(nb::handle batch) {
  try {
    return samples_in(batch);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    const bool ran_python = error.traceback().is_valid() && !error.traceback().is_none();
    if (ran_python && nb::cast<bool>(faults().attr("is_of_signal_handler")(error.value()))) throw;
    return 0;
  } catch (const nb::cast_error&) {
    return 0;
  }
}

/// Stands for a method of a class and calls a function before and one after it. It has no frame in
/// Python, so that warnings of the method name the line of its caller.
class Around {
 public:
  Around(nb::object before, nb::object method, nb::object after)
      : before_(std::move(before)), method_(std::move(method)), after_(std::move(after)) {}

  /// Passes what `before` returns on to `after`, and the method's error or None, unless it is None.
  nb::object call(const nb::args& given, const nb::kwargs& named) const {
    const nb::object state = before_(*given, **named);
    nb::object returned;
    try {
      returned = method_(*given, **named);
    } catch (const nb::python_error& error) {
      if (!state.is_none()) after_(state, error.value());
      throw;
    }
    if (!state.is_none()) after_(state, nb::none());
    return returned;
  }
  const nb::object& method() const { return method_; }

 private:
  nb::object before_, method_, after_;
};

/// Hooks of torch and of iterators, for one thread of a session. They do nothing elsewhere.
class StepHooks {
 public:
  explicit StepHooks(std::int64_t now) : timeline(std::make_shared<LoopTimeline>(now)) {}

  bool is_open() const { return open && (whole == nullptr || whole->open); }
  bool takes_part() const { return is_open() && PyThread_get_thread_ident() == thread; }

  /// Hook of modules, which removes itself: a global hook slows every module's call down.
  void before_forward(const nb::args& given, const nb::kwargs&) {
    if (!begins()) return;
    if (open) note_mode(given);
    disarm();
  }
  /// Called ahead of torch's _maybe_set_eval_frame, which a function that torch compiles calls with
  /// a callback when it begins. The hook of modules must be gone by then: torch would compile it
  /// too.
  void before_compiled(nb::handle callback) {
    if (callback.is_none() || !begins()) return;
    evaluates = false;  // not known
    disarm();
  }
  void before_step(const nb::args&) {
    if (takes_part()) timeline->step_begins(wall_ns());
  }
  void after_step(const nb::args&) {
    if (!takes_part()) {
      if (is_open() && !on_step_elsewhere.is_none()) on_step_elsewhere();
      return;
    }
    timeline->step_ended(wall_ns());
    if (!on_step.is_none()) on_step();
  }
  /// Goes on in the calling thread, with a timeline of its own. Returns hooks of the thread so far,
  /// with its timeline.
  std::shared_ptr<StepHooks> leave_thread() {
    const std::int64_t now = wall_ns();
    auto left = std::make_shared<StepHooks>(now);
    left->timeline.swap(timeline);
    left->thread = std::exchange(thread, PyThread_get_thread_ident());
    left->open = open;
    return left;
  }
  /// Called ahead of threading.Condition.wait, and after it with what this has returned: when the
  /// thread began to wait for another one, as for a queue. None elsewhere.
  std::optional<std::int64_t> before_wait(const nb::args&, const nb::kwargs&) const {
    if (!takes_part() || timeline->front() != nullptr) return std::nullopt;
    return wall_ns();
  }
  void after_wait(std::int64_t began, nb::handle) {
    if (takes_part() && timeline->front() == nullptr) waited += wall_ns() - began;
  }
  /// Has names[key] be `hook` while the next forward is awaited. Otherwise it is `plain`, or absent
  /// without it.
  void put_while_armed(nb::object names, nb::object key, nb::object hook, nb::object plain) {
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

  std::shared_ptr<LoopTimeline> timeline;
  std::shared_ptr<StepHooks>
      whole;  ///< of a loader that another thread iterates over: that of the run
  unsigned long thread = 0;
  std::int64_t waited = 0;  ///< between loaders, for other threads
  bool open = false;
  bool evaluates = false;                     ///< the latest module was in evaluation mode
  bool computes = false;                      ///< a module has been called in the thread
  nb::object on_step = nb::none();            ///< called after a step of an optimizer
  nb::object on_step_elsewhere = nb::none();  ///< likewise, in another thread

 private:
  struct Place {
    nb::object names, key, hook, plain;

    void set(const nb::object& value) const {
      if (!value.is_none()) {
        if (PyObject_SetItem(names.ptr(), key.ptr(), value.ptr()) != 0) throw nb::python_error();
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
      timeline->forward(wall_ns());
    }
    return true;
  }
  /// Reads the mode of a hook's module.
  void note_mode(const nb::args& given) {
    if (given.size() == 0) return;
    PyObject* const training = PyObject_GetAttrString(given[0].ptr(), "training");
    if (training == nullptr) PyErr_Clear();
    evaluates = training == Py_False;
    Py_XDECREF(training);
  }

  std::vector<Place> places_;
  bool armed_ = false;
};

/// Steps of a loader in a session.
class LoaderSteps : public LoopSteps {
 public:
  LoaderSteps(std::shared_ptr<StepHooks> session, std::shared_ptr<LoopTable> table,
              std::shared_ptr<DataLoaderBreakdown> breakdown)
      : LoopSteps(session->timeline, std::move(table), std::move(breakdown)),
        session_(std::move(session)) {}

  /// Begins a call of next(). Returns whether it is recorded.
  bool begin(std::int64_t of, Receipts* receipts) {
    if (of != generation || !session_->takes_part()) return false;
    next_begins(wall_ns(), receipts);
    return true;
  }
  /// Ends a call of next(). Returns what is due.
  int end(std::int64_t batch, nb::handle data, const Receipts* receipts) {
    if (!session_->is_open())
      return static_cast<int>(Due::nothing);  // the recording ended meanwhile
    const std::int64_t now = wall_ns();
    std::int64_t samples = 0;
    try {
      samples = samples_or_none(data);
    } catch (const nb::python_error&) {  // from a signal's handler: next() ends with it
      next_ended(now, batch, 0, receipts);
      throw;
    }
    next_ended(now, batch, samples, receipts);
    session_->arm();
    return static_cast<int>(due(now));
  }
  /// Stays in its thread, which has got hooks of its own.
  void stay(std::shared_ptr<StepHooks> session) { session_ = std::move(session); }
  /// Goes on in the thread of another session.
  void move(std::shared_ptr<StepHooks> session) {
    go_on(session->timeline, wall_ns());
    session_ = std::move(session);
  }

 private:
  std::shared_ptr<StepHooks> session_;
};

void bind_records(nb::module_& module) {
  nb::class_<ThreadClock>(module, "ThreadClock")
      .def(nb::init<const std::string&>(), nb::arg("schedstat") = kSchedstat)
      .def("read", [](ThreadClock& clock) { return times_of(clock.read()); });
  nb::class_<RecordRing>(module, "RecordRing")
      .def(nb::init<std::int64_t, std::int64_t, const std::string&>(), nb::arg("slots"),
           nb::arg("parts"), nb::arg("path") = "")
      .def_prop_ro("path", &RecordRing::path)
      .def_prop_ro("slots", &RecordRing::slots)
      .def("made", [](const RecordRing& file) {
        std::vector<Made> all;
        for (const WorkerRecord& one : file.made())
          all.emplace_back(one.generation, one.batch, one.worker, one.begin, one.collate, one.end,
                           one.send_begin, one.send_end);
        return all;
      });
  nb::class_<FetchProbe>(module, "FetchProbe")
      .def(nb::init<std::int64_t, std::int64_t, const std::string&, std::shared_ptr<RecordRing>>(),
           nb::arg("worker"), nb::arg("generation"), nb::arg("schedstat"), nb::arg("file").none())
      .def_rw("generation", &FetchProbe::generation)
      .def_rw("next_batch", &FetchProbe::next_batch)
      .def_rw("unsampled", &FetchProbe::unsampled)
      .def(
          "asked",
          [](FetchProbe& probe, nb::handle task) {
            if (PyTuple_Check(task.ptr())) probe.next_batch = batch_of(task);
          },
          nb::arg("task").none())
      .def("begin", &FetchProbe::begin)
      .def("collate", &FetchProbe::collate)
      .def("restart_clock", &FetchProbe::restart_clock, nb::arg("schedstat"))
      .def("end", &FetchProbe::end)
      .def("keep", &FetchProbe::keep, nb::arg("samples"), nb::arg("transform") = kUnknown,
           nb::arg("transform_cpu") = kUnknown, nb::arg("parts") = Parts{})
      .def(
          "finish",
          [](FetchProbe& probe, nb::handle index) {
            probe.end();
            probe.keep(samples_at(index), kUnknown, kUnknown, {});
          },
          nb::arg("index").none());
  nb::class_<SendProbe>(module, "SendProbe")
      .def(nb::init<std::string, std::shared_ptr<RecordRing>>(), nb::arg("schedstat"),
           nb::arg("file"))
      .def(
          "begin", [](SendProbe& probe, nb::handle task) { probe.begin(batch_of(task)); },
          nb::arg("task").none())
      .def("pickled", &SendProbe::pickled)
      .def("sent", &SendProbe::sent);
}

void bind_timeline(nb::module_& module) {
  nb::class_<LoopTable>(module, "Table")
      .def(nb::init<>())
      .def_ro("epoch", &LoopTable::epoch)
      .def_ro("steps", &LoopTable::steps)
      .def_ro("images", &LoopTable::images)
      .def_ro("iter_ns", &LoopTable::iter_ns)
      .def_ro("updates", &LoopTable::updates)
      .def_ro("total", &LoopTable::total)
      .def_ro("first", &LoopTable::first)
      .def_prop_ro("row", [](const LoopTable& table) { return table.row.ns; })
      .def_prop_ro("spans", [](const LoopTable& table) {
        LoopSpans all = table.total;
        for (std::size_t i = 0; i < all.size(); ++i) all[i] += table.row.ns[i];
        return all;
      });
  nb::class_<LoopTimeline>(module, "Timeline")
      .def(nb::init<std::int64_t>())
      .def("forward", &LoopTimeline::forward)
      .def("step_begins", &LoopTimeline::step_begins)
      .def("step_ended", &LoopTimeline::step_ended)
      .def_prop_ro("stepped", &LoopTimeline::stepped)
      .def_prop_ro(
          "marks",
          [](const LoopTimeline& one) { return std::pair(one.forward_mark(), one.step_mark()); })
      .def("iter_begins", &LoopTimeline::iter_begins)
      .def("iter_ended", &LoopTimeline::iter_ended)
      .def("next_begins", &LoopTimeline::next_begins)
      .def("next_ended", &LoopTimeline::next_ended)
      .def("exhausted", &LoopTimeline::exhausted)
      .def("logged_after_next", &LoopTimeline::logged_after_next)
      .def("logged", &LoopTimeline::logged)
      .def("close", &LoopTimeline::close)
      .def("holds", &LoopTimeline::holds)
      .def_prop_ro("front", &LoopTimeline::front);
}

void bind_breakdown(nb::module_& module) {
  nb::class_<DataLoaderBreakdown>(module, "Breakdown")
      .def(nb::init<std::size_t>(), nb::arg("transforms") = 0)
      .def(
          "add",
          [](DataLoaderBreakdown& self, const nb::object& wait, const nb::object& record,
             std::int64_t started, bool in_order, const nb::object& next) {
            WorkerRecord of{}, behind{};
            Parts parts;
            if (!record.is_none()) {
              const auto fields = nb::cast<nb::tuple>(record);
              of = record_of(fields);
              parts = nb::cast<Parts>(nb::handle(fields[kRecordFields]));
            }
            if (!next.is_none()) behind = record_of(nb::cast<nb::tuple>(next));
            self.add(wait_of(nb::cast<nb::tuple>(wait)), record.is_none() ? nullptr : &of, parts,
                     started, in_order, next.is_none() ? nullptr : &behind);
          },
          nb::arg("wait"), nb::arg("record").none(), nb::arg("started"), nb::arg("in_order"),
          nb::arg("next").none() = nb::none())
      .def("add_wait", [](DataLoaderBreakdown& self, int place,
                          double ns) { self.add_wait(static_cast<Place>(place), ns); })
      .def(
          "add_outside",
          [](DataLoaderBreakdown& self, int place, std::array<std::int64_t, 3> reading, double ns) {
            self.add_wait(static_cast<Place>(place), ns,
                          kinds_of(reading[0], reading[1], reading[2]));
          })
      .def("set_transforms", &DataLoaderBreakdown::set_transforms)
      .def("copy", [](const DataLoaderBreakdown& self) { return DataLoaderBreakdown(self); })
      .def_ro("waits", &DataLoaderBreakdown::waits)
      .def_ro("work", &DataLoaderBreakdown::work)
      .def_ro("steady", &DataLoaderBreakdown::steady)
      .def_ro("rows", &DataLoaderBreakdown::rows)
      .def_ro("batches", &DataLoaderBreakdown::batches)
      .def_ro("missing", &DataLoaderBreakdown::missing)
      .def_ro("overruns", &DataLoaderBreakdown::overruns)
      .def_ro("sampled_batches", &DataLoaderBreakdown::sampled_batches)
      .def_ro("sampled_samples", &DataLoaderBreakdown::sampled_samples)
      .def_prop_ro("demands",
                   [](const DataLoaderBreakdown& self) {
                     return std::vector<DataLoaderBreakdown::Demand>(self.demands.begin(),
                                                                     self.demands.end());
                   })
      .def_ro("rebuilt", &DataLoaderBreakdown::rebuilt)
      .def_ro("handed", &DataLoaderBreakdown::handed)
      .def_ro("rebuilds", &DataLoaderBreakdown::rebuilds)
      .def_ro("hands", &DataLoaderBreakdown::hands);
}

void bind_around(nb::module_& module) {
  nb::class_<Around>(module, "Around")
      .def(nb::init<nb::object, nb::object, nb::object>(), nb::arg("before"), nb::arg("method"),
           nb::arg("after").none() = nb::none())
      .def_prop_ro("__wrapped__", &Around::method)
      .def("__call__", &Around::call)
      .def(
          "__get__",
          [](const nb::object& self, const nb::object& instance, const nb::handle&) -> nb::object {
            if (instance.is_none()) return self;
            return nb::module_::import_("types").attr("MethodType")(self, instance);
          },
          nb::arg("instance").none(), nb::arg("owner").none() = nb::none());
}

void bind_session(nb::module_& module) {
  nb::class_<StepHooks>(module, "StepHooks")
      .def(nb::init<std::int64_t>(), nb::arg("now"))
      .def_ro("timeline", &StepHooks::timeline)
      .def_rw("thread", &StepHooks::thread)
      .def_prop_ro("own_time",
                   [](const StepHooks& hooks) {
                     return std::pair(hooks.timeline->between(wall_ns()), hooks.waited);
                   })
      .def_rw("whole", &StepHooks::whole, nb::arg().none())
      .def_rw("open", &StepHooks::open)
      .def_ro("evaluates", &StepHooks::evaluates)
      .def_ro("computes", &StepHooks::computes)
      .def_rw("on_step", &StepHooks::on_step, nb::arg().none())
      .def_rw("on_step_elsewhere", &StepHooks::on_step_elsewhere, nb::arg().none())
      .def("leave_thread", &StepHooks::leave_thread)
      .def("put_while_armed", &StepHooks::put_while_armed, nb::arg("names"), nb::arg("key"),
           nb::arg("hook"), nb::arg("plain").none() = nb::none())
      .def("arm", &StepHooks::arm)
      .def("remove", &StepHooks::remove)
      .def("before_forward", &StepHooks::before_forward)
      .def("before_compiled", &StepHooks::before_compiled, nb::arg("callback").none())
      .def("before_wait", &StepHooks::before_wait)
      .def("after_wait", &StepHooks::after_wait, nb::arg("began"), nb::arg("error").none())
      .def("before_step", &StepHooks::before_step)
      .def("after_step", &StepHooks::after_step);
  nb::class_<Receipts>(module, "Receipts")
      .def(nb::init<std::shared_ptr<ThreadClock>, bool>(), nb::arg("clock"), nb::arg("pinned"))
      .def_ro("pinned", &Receipts::pinned)
      .def_ro("batch", &Receipts::batch)
      .def("set_clock", &Receipts::set_clock, nb::arg("clock"))
      .def("reads", &Receipts::reads)
      .def("received", &Receipts::received)
      .def(
          "rebuilt", [](Receipts& receipts, nb::handle item) { receipts.rebuilt(batch_of(item)); },
          nb::arg("item").none());
  nb::class_<LoaderSteps>(module, "Steps")
      .def(nb::init<std::shared_ptr<StepHooks>, std::shared_ptr<LoopTable>,
                    std::shared_ptr<DataLoaderBreakdown>>(),
           nb::arg("session"), nb::arg("table"), nb::arg("breakdown"))
      .def("begin", &LoaderSteps::begin, nb::arg("generation"), nb::arg("receipts").none())
      .def("end", &LoaderSteps::end, nb::arg("batch"), nb::arg("data").none(),
           nb::arg("receipts").none())
      .def("stay", &LoaderSteps::stay, nb::arg("session"))
      .def("move", &LoaderSteps::move, nb::arg("session"))
      .def("flush", &LoaderSteps::flush)
      .def("used_in_next",
           [](const LoaderSteps& steps, std::int64_t since) {
             const Usage used = steps.used_in_next(since);
             return std::pair(used.cpu, used.delay);
           })
      .def("follow",
           [](LoaderSteps& steps, std::vector<std::int64_t> threads) {
             steps.others.follow(std::move(threads));
           })
      .def_prop_ro("others",
                   [](const LoaderSteps& steps) {
                     const OtherThreads::Sums& sums = steps.others.sums();
                     return std::tuple(sums.next_cpu, sums.next_wall, sums.body_cpu,
                                       sums.body_wall);
                   })
      .def_prop_ro("waits", &LoaderSteps::waits)
      .def_prop_ro("waiting_since",
                   [](const LoaderSteps& steps) { return steps.waiting->since.load(); })
      .def("waits_no_more", [](const LoaderSteps& steps) { steps.waiting->end(); })
      .def_rw("generation", &LoaderSteps::generation)
      .def_rw("started", &LoaderSteps::started)
      .def_rw("in_order", &LoaderSteps::in_order)
      .def_rw("measures", &LoaderSteps::measures)
      .def_ro("first", &LoaderSteps::first)
      .def_rw("probe", &LoaderSteps::probe, nb::arg().none())
      .def_rw("records", &LoaderSteps::records, nb::arg().none());
}

using StalledLoader =
    std::tuple<const LoaderSteps*, std::int64_t, std::string, std::string, std::string>;

void bind_lock_watch(nb::module_& module) {
  nb::class_<LockWatch>(module, "LockWatch")
      .def(nb::init<>())
      .def("begin", &LockWatch::begin, nb::arg("look_ns"))
      .def(
          "beat",
          [](LockWatch& watch, const std::vector<StalledLoader>& loaders, const nb::bytes& file,
             int line_file, std::int64_t limit) {
            std::vector<LockWatch::Loader> all;
            for (const auto& [steps, limit_ns, name, text, record] : loaders)
              all.push_back({steps->waiting, limit_ns, name, text, record});
            watch.beat(std::move(all), {std::string(file.c_str(), file.size()), line_file, limit});
          },
          nb::arg("loaders"), nb::arg("file"), nb::arg("line_file"), nb::arg("limit"))
      .def("end", &LockWatch::end, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("reports", &LockWatch::reports);
}

}  // namespace
}  // namespace millrace::python

NB_MODULE(_watch, module) {
  using namespace millrace::python;
  using namespace millrace::measure;
  nb::set_leak_warnings(false);  // a hook that a script keeps until exit is not a leak of ours
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const std::system_error& e) {
      const nb::object text = nb::steal(PyUnicode_DecodeFSDefault(e.what()));  // it names a path
      PyErr_SetObject(PyExc_OSError, nb::make_tuple(e.code().value(), text).ptr());
    }
  });
  bind_records(module);
  bind_timeline(module);
  bind_breakdown(module);
  bind_session(module);
  bind_around(module);
  bind_lock_watch(module);
  module.def("threads_of", [](std::int64_t process) {
    std::vector<Times> found;
    for (const ThreadTimes& one : threads_of(process))
      found.emplace_back(one.id, one.cpu, one.delay);
    return found;
  });
  const auto names = [](const auto& of) {
    nb::list all;
    for (const char* const name : of) all.append(name);
    return nb::tuple(all);
  };
  module.attr("PLACES") = names(kPlaceNames);
  module.attr("KINDS") = names(kKindNames);
  module.attr("SPANS") = names(kLoopSpanNames);
  namespace rules = millrace::predict;
  module.attr("FIRST_STEPS") = kFirstSteps;
  module.attr("STEPS_FOR_VERDICT") = rules::kStepsForVerdict;
  module.attr("LOAD_THAT_BINDS") = rules::kLoadThatBinds;
  module.def("load_that_binds", &rules::load_that_binds, nb::arg("overlaps"));
  module.attr("MAX_OTHERS") = rules::kMaxOthers;
  module.attr("COUNTED_EFFECT") = rules::kCountedEffect;
  module.attr("WORTHWHILE") = rules::kWorthwhile;
  module.attr("ENOUGH") = rules::kEnough;
  module.attr("INTERVAL_LEVEL") = rules::kIntervalLevel;
  module.attr("MEASURE") = static_cast<int>(Due::measure);
  module.attr("FLUSH") = static_cast<int>(Due::flush);
  module.attr("UNKNOWN") = kUnknown;
  module.attr("SCHEDSTAT") = kSchedstat;
}
