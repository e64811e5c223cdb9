// The module pymillrace._predict: what is made of records: predictions of a DataLoader's changes,
// their verification, statistics, and traces. Apart from _watch, which records and stays small.
#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "measure/trace_events.h"
#include "predict/data_loader_prediction.h"
#include "predict/data_loader_replay.h"
#include "predict/interval.h"
#include "predict/score.h"
#include "predict/verification.h"

namespace nb = nanobind;

namespace millrace::python {
namespace {

/// Lets other Python threads run during a call. Bound objects do not change.
using Unlocked = nb::call_guard<nb::gil_scoped_release>;

using predict::DataLoaderInput;
using predict::Demand;

/// Returns a copy of a bound object with other values of some of its constructor's arguments.
nb::object replaced(nb::handle self, std::span<const char* const> names,
                    const nb::kwargs& changes) {
  nb::dict fields;
  for (const char* const name : names) fields[name] = self.attr(name);
  fields.update(changes);
  return self.type()(**fields);
}

constexpr const char* kDemandNames[] = {"cpu_s", "blocked_s", "threads"};
constexpr const char* kInputNames[] = {"workers",       "prefetch", "batch",  "cores",   "ahead",
                                       "fetch",         "pause_s",  "send",   "receive", "tensors",
                                       "tensor_wait_s", "hand",     "update", "steps",   "spins"};

void bind_replay(nb::module_& module) {
  nb::class_<Demand>(module, "Demand")
      .def(nb::init<double, double, double>(), nb::arg("cpu_s") = 0.0, nb::arg("blocked_s") = 0.0,
           nb::arg("threads") = 1.0)
      .def_ro("cpu_s", &Demand::cpu_s)
      .def_ro("blocked_s", &Demand::blocked_s)
      .def_ro("threads", &Demand::threads)
      .def_prop_ro("seconds", &Demand::seconds)
      .def("replace",
           [](nb::handle self, const nb::kwargs& changes) {
             return nb::cast<Demand>(replaced(self, kDemandNames, changes));
           })
      .def(nb::self == nb::self);
  module.def(
      "mean_of", [](const std::vector<Demand>& demands) { return mean_of(demands); },
      nb::arg("demands"));
  nb::class_<DataLoaderInput>(module, "DataLoaderInput")
      .def(
          "__init__",
          [](DataLoaderInput* self, int workers, int prefetch, std::int64_t batch, int cores,
             std::vector<Demand> fetch, const Demand& send, const Demand& receive,
             const Demand& hand, const Demand& update, int steps, bool spins, double pause_s,
             int ahead, int tensors, double tensor_wait_s) {
            new (self) DataLoaderInput{workers,          prefetch, batch,  cores,   ahead,
                                       std::move(fetch), pause_s,  send,   receive, tensors,
                                       tensor_wait_s,    hand,     update, steps,   spins};
          },
          nb::arg("workers"), nb::arg("prefetch"), nb::arg("batch"), nb::arg("cores"),
          nb::arg("fetch"), nb::arg("send") = Demand(), nb::arg("receive") = Demand(),
          nb::arg("hand") = Demand(), nb::arg("update") = Demand(), nb::arg("steps") = 200,
          nb::arg("spins") = true, nb::arg("pause_s") = 0.0, nb::arg("ahead") = 0,
          nb::arg("tensors") = 0, nb::arg("tensor_wait_s") = 0.0)
      .def_ro("workers", &DataLoaderInput::workers)
      .def_ro("prefetch", &DataLoaderInput::prefetch)
      .def_ro("batch", &DataLoaderInput::batch)
      .def_ro("cores", &DataLoaderInput::cores)
      .def_ro("ahead", &DataLoaderInput::ahead)
      .def_ro("fetch", &DataLoaderInput::fetch)
      .def_ro("send", &DataLoaderInput::send)
      .def_ro("receive", &DataLoaderInput::receive)
      .def_ro("tensors", &DataLoaderInput::tensors)
      .def_ro("tensor_wait_s", &DataLoaderInput::tensor_wait_s)
      .def_ro("hand", &DataLoaderInput::hand)
      .def_ro("update", &DataLoaderInput::update)
      .def_ro("steps", &DataLoaderInput::steps)
      .def_ro("spins", &DataLoaderInput::spins)
      .def_ro("pause_s", &DataLoaderInput::pause_s)
      .def("replace",
           [](nb::handle self, const nb::kwargs& changes) {
             return nb::cast<DataLoaderInput>(replaced(self, kInputNames, changes));
           })
      .def(nb::self == nb::self);
  using predict::DataLoaderOutput;
  nb::class_<DataLoaderOutput>(module, "DataLoaderOutput")
      .def_ro("images_per_s", &DataLoaderOutput::images_per_s)
      .def_ro("load_s", &DataLoaderOutput::load_s)
      .def_ro("update_s", &DataLoaderOutput::update_s)
      .def_ro("busy_cores", &DataLoaderOutput::busy_cores);
  module.def(
      "replay", [](const DataLoaderInput& input) { return predict::replay(input); },
      nb::arg("input"), Unlocked());
  module.def("usual_pause", &predict::usual_pause, nb::arg("fetch"), nb::arg("tensors"));
  module.def("without_spinning", &predict::without_spinning, nb::arg("measured"),
             nb::arg("update_s"), Unlocked());
}

void bind_prediction(nb::module_& module) {
  module.attr("USUAL_TENSORS") = predict::kUsualTensors;
  module.attr("MODEL_ERROR") = predict::kDataLoaderModelError;
  module.attr("MAX_COOLING") = predict::kMaxCooling;
  module.attr("MAX_CROWDING") = predict::kMaxCrowding;
  using predict::Paging;
  nb::class_<Paging>(module, "Paging")
      .def(nb::init<double, double>(), nb::arg("make_s") = 0.0, nb::arg("take_s") = 0.0)
      .def_ro("make_s", &Paging::make_s)
      .def_ro("take_s", &Paging::take_s);
  using predict::DataLoaderChange;
  nb::class_<DataLoaderChange>(module, "DataLoaderChange")
      .def_ro("argument", &DataLoaderChange::argument)
      .def_ro("value", &DataLoaderChange::value)
      .def_ro("input", &DataLoaderChange::input)
      .def_ro("loading_only", &DataLoaderChange::loading_only);
  module.def("with_workers", &predict::with_workers, nb::arg("input"), nb::arg("workers"),
             nb::arg("paging"));
  using predict::Doubts;
  nb::class_<Doubts>(module, "Doubts")
      .def(nb::init<double, double, double>(), nb::arg("fetch") = 0.0, nb::arg("update") = 0.0,
           nb::arg("spinning") = 1.0)
      .def_ro("fetch", &Doubts::fetch)
      .def_ro("update", &Doubts::update)
      .def_ro("spinning", &Doubts::spinning);
  using predict::DataLoaderRatios;
  nb::class_<DataLoaderRatios>(module, "DataLoaderRatios")
      .def(nb::init<const DataLoaderInput&, double, const Doubts&>(), nb::arg("input"),
           nb::arg("measured"), nb::arg("doubts"), Unlocked())
      .def(
          "with_interval",
          [](const DataLoaderRatios& self, const DataLoaderInput& changed) {
            const predict::RatioInterval found = self.with_interval(changed);
            return std::tuple(found.ratio(), found.low(), found.high());
          },
          nb::arg("changed"), Unlocked());
  using predict::RecordedRun;
  nb::class_<RecordedRun>(module, "RecordedRun")
      .def(nb::init<double, double, double, double, double, int>(), nb::arg("images_per_s"),
           nb::arg("blocked_in_dataset"), nb::arg("update_s") = 0.0, nb::arg("fetch_error") = 0.0,
           nb::arg("update_error") = 0.0, nb::arg("shards") = 0)
      .def_ro("images_per_s", &RecordedRun::images_per_s)
      .def_ro("blocked_in_dataset", &RecordedRun::blocked_in_dataset)
      .def_ro("update_s", &RecordedRun::update_s)
      .def_ro("fetch_error", &RecordedRun::fetch_error)
      .def_ro("update_error", &RecordedRun::update_error)
      .def_ro("shards", &RecordedRun::shards);
  using predict::PredictedRatio;
  nb::class_<PredictedRatio>(module, "PredictedRatio")
      .def_ro("ratio", &PredictedRatio::ratio)
      .def_ro("low", &PredictedRatio::low)
      .def_ro("high", &PredictedRatio::high)
      .def_ro("loader_images_per_s", &PredictedRatio::loader_images_per_s);
  using predict::DataLoaderPredictor;
  nb::class_<DataLoaderPredictor>(module, "DataLoaderPredictor")
      .def(nb::init<const DataLoaderInput&, const RecordedRun&>(), nb::arg("measured"),
           nb::arg("run"), Unlocked())
      .def_prop_ro("input", &DataLoaderPredictor::input)
      .def_prop_ro("doubts", &DataLoaderPredictor::doubts)
      .def_prop_ro("images_per_s", &DataLoaderPredictor::images_per_s)
      .def_prop_ro("loader_images_per_s", &DataLoaderPredictor::loader_images_per_s)
      .def("changes", &DataLoaderPredictor::changes, nb::arg("paging"))
      .def("predict", &DataLoaderPredictor::predict, nb::arg("change"), Unlocked());
}

/// images/s, the share of the cores that others took (NaN: unknown), and whether the run failed.
using Timed = std::tuple<double, double, bool>;

void bind_verification(nb::module_& module) {
  using predict::Verification;
  module.def(
      "verification_order",
      [](std::size_t changes, int blocks, std::uint64_t seed) {
        std::vector<std::size_t> all(changes);
        for (std::size_t i = 0; i < changes; ++i) all[i] = i;
        return predict::verification_order(all, blocks, seed);
      },
      nb::arg("changes"), nb::arg("blocks"), nb::arg("seed"));
  nb::class_<Verification>(module, "Verification")
      .def(
          "__init__",
          [](Verification* self, const predict::VerificationOrder& order,
             const std::function<Timed(std::optional<std::size_t>)>& run) {
            new (self) Verification(order, [&run](std::optional<std::size_t> change) {
              const auto [images_per_s, others, failed] = run(change);
              return predict::TimedRun{change, images_per_s, others, failed};
            });
          },
          nb::arg("order"), nb::arg("run"))
      .def_prop_ro("is_void", &Verification::is_void)
      .def("ratio", &Verification::ratio, nb::arg("change"))
      .def("interval", &Verification::interval, nb::arg("change"))
      .def("valid_blocks", &Verification::valid_blocks, nb::arg("change"));
}

void bind_statistics(nb::module_& module) {
  module.def("t_quantile", &predict::t_quantile, nb::arg("freedom"), nb::arg("confidence"));
  nb::class_<predict::Score>(module, "Score")
      .def_ro("counted", &predict::Score::counted)
      .def_ro("with_interval", &predict::Score::with_interval)
      .def_ro("held", &predict::Score::held)
      .def_ro("median_error", &predict::Score::median_error)
      .def_ro("worst_error", &predict::Score::worst_error)
      .def_ro("skill", &predict::Score::skill);
  module.def(
      "score_of",
      [](const std::vector<std::tuple<double, double, double, double>>& rows) {
        std::vector<predict::Prediction> all;
        for (const auto& [predicted, measured, low, high] : rows)
          all.push_back({predicted, measured, low, high});
        return predict::score_of(all);
      },
      nb::arg("predictions"));
}

void bind_trace(nb::module_& module) {
  using measure::TraceEvents;
  nb::class_<TraceEvents>(module, "TraceEvents")
      .def(nb::init<std::int64_t>(), nb::arg("origin_ns"))
      .def("name_process", &TraceEvents::name_process, nb::arg("process"), nb::arg("name"))
      .def(
          "name_track",
          [](TraceEvents& self, int process, int thread, std::string_view name) {
            self.name_track({process, thread}, name);
          },
          nb::arg("process"), nb::arg("thread"), nb::arg("name"))
      .def(
          "slice",
          [](TraceEvents& self, int process, int thread, std::string_view name, std::int64_t begin,
             std::int64_t end, std::string_view arguments) {
            self.slice({process, thread}, name, begin, end, arguments);
          },
          nb::arg("process"), nb::arg("thread"), nb::arg("name"), nb::arg("begin"), nb::arg("end"),
          nb::arg("arguments"))
      .def("finish", [](TraceEvents& self) {
        self.finish();
        return self.take();
      });
}

}  // namespace
}  // namespace millrace::python

NB_MODULE(_predict, module) {
  millrace::python::bind_replay(module);
  millrace::python::bind_prediction(module);
  millrace::python::bind_trace(module);
  millrace::python::bind_verification(module);
  millrace::python::bind_statistics(module);
}
