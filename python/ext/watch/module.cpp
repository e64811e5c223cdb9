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
#include "python/ext/watch/around.h"
#include "python/ext/watch/loader_steps.h"
#include "python/ext/watch/recorder_lock.h"
#include "python/ext/watch/step_hooks.h"
#include "python/ext/watch/torch_batch.h"

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

void bind_records(nb::module_& module) {
  RecorderClass<ThreadClock>(module, "ThreadClock")
      .def(nb::init<const std::string&>(), nb::arg("schedstat") = kSchedstat)
      .def("read", [](ThreadClock& clock) { return times_of(clock.read()); });
  RecorderClass<RecordRing>(module, "RecordRing")
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
  RecorderClass<FetchProbe>(module, "FetchProbe")
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
      .def("begin", [](FetchProbe& probe) { return static_cast<int>(probe.begin()); })
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
  RecorderClass<SendProbe>(module, "SendProbe")
      .def(nb::init<std::string, std::shared_ptr<RecordRing>>(), nb::arg("schedstat"),
           nb::arg("file"))
      .def(
          "begin", [](SendProbe& probe, nb::handle task) { probe.begin(batch_of(task)); },
          nb::arg("task").none())
      .def("pickled", &SendProbe::pickled)
      .def("sent", &SendProbe::sent);
}

void bind_timeline(nb::module_& module) {
  RecorderClass<LoopTable>(module, "Table")
      .def(nb::init<>())
      .def_ro("epoch", &LoopTable::epoch)
      .def_ro("steps", &LoopTable::steps)
      .def_ro("images", &LoopTable::images)
      .def_ro("iter_ns", &LoopTable::iter_ns)
      .def_ro("updates", &LoopTable::updates)
      .def_ro("turns", &LoopTable::turns)
      .def_ro("total", &LoopTable::total)
      .def_ro("first", &LoopTable::first)
      .def_prop_ro("row", [](const LoopTable& table) { return table.row.ns; })
      .def_prop_ro("spans", [](const LoopTable& table) {
        LoopSpans all = table.total;
        for (std::size_t i = 0; i < all.size(); ++i) all[i] += table.row.ns[i];
        return all;
      });
  RecorderClass<LoopTimeline>(module, "Timeline")
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
      .def("abandoned", &LoopTimeline::abandoned)
      .def("exhausted", &LoopTimeline::exhausted)
      .def("logged_after_next", &LoopTimeline::logged_after_next)
      .def("logged", &LoopTimeline::logged)
      .def("close", &LoopTimeline::close, nb::arg("tables"), nb::arg("now"),
           nb::arg("is_cut") = false)
      .def("holds", &LoopTimeline::holds)
      .def_prop_ro("front", &LoopTimeline::front);
}

void bind_breakdown(nb::module_& module) {
  RecorderClass<DataLoaderBreakdown>(module, "Breakdown")
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
  RecorderClass<StepHooks>(module, "StepHooks")
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
  RecorderClass<Receipts>(module, "Receipts")
      .def(nb::init<std::shared_ptr<ThreadClock>, bool>(), nb::arg("clock"), nb::arg("pinned"))
      .def_ro("pinned", &Receipts::pinned)
      .def_ro("batch", &Receipts::batch)
      .def("set_clock", &Receipts::set_clock, nb::arg("clock"))
      .def("reads", &Receipts::reads)
      .def("received", &Receipts::received)
      .def(
          "rebuilt", [](Receipts& receipts, nb::handle item) { receipts.rebuilt(batch_of(item)); },
          nb::arg("item").none());
  RecorderClass<LoaderSteps>(module, "Steps")
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
           [](LoaderSteps& steps, std::int64_t since) {
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
      .def("waits_no_more", &LoaderSteps::waits_no_more)
      .def_prop_ro("is_inside_another", &LoaderSteps::is_inside_another)
      .def_rw("generation", &LoaderSteps::generation)
      .def_rw("started", &LoaderSteps::started)
      .def_rw("batch_size", &LoaderSteps::batch_size)
      .def_rw("in_order", &LoaderSteps::in_order)
      .def_rw("measures", &LoaderSteps::measures)
      .def_ro("first", &LoaderSteps::first)
      .def_prop_rw("probe", &LoaderSteps::probe, &LoaderSteps::set_probe, nb::arg().none())
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
  RecorderLock::object = new nb::object(nb::borrow(module));
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
  module.attr("OUTLINE") = static_cast<int>(Depth::outline);
  module.attr("DETAIL") = static_cast<int>(Depth::detail);
  module.attr("TRANSFORMS") = static_cast<int>(Depth::transforms);
  module.attr("MEASURE") = static_cast<int>(Due::measure);
  module.attr("FLUSH") = static_cast<int>(Due::flush);
  module.attr("UNKNOWN") = kUnknown;
  module.attr("SCHEDSTAT") = kSchedstat;
}
