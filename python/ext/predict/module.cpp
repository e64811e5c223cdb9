// The module pymillrace._predict: replay of a DataLoader, verification, and their statistics. Apart
// from _watch, because a watched script needs it only when predictions are made.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include "predict/data_loader_replay.h"
#include "predict/interval.h"
#include "predict/score.h"
#include "predict/verification.h"

namespace nb = nanobind;

namespace millrace::python {
namespace {

/// Returns a pymillrace.watcher.replay.Demand.
predict::Demand demand_of(nb::handle demand) {
  return {nb::cast<double>(demand.attr("cpu")), nb::cast<double>(demand.attr("blocked")),
          nb::cast<double>(demand.attr("threads"))};
}

/// Returns a pymillrace.watcher.replay.Setup.
predict::DataLoaderInput input_of(nb::handle setup) {
  predict::DataLoaderInput input;
  input.workers = nb::cast<int>(setup.attr("workers"));
  input.prefetch = nb::cast<int>(setup.attr("prefetch"));
  input.batch = nb::cast<std::int64_t>(setup.attr("batch"));
  input.cores = nb::cast<int>(setup.attr("cores"));
  for (const nb::handle one : nb::object(setup.attr("fetch")))
    input.fetch.push_back(demand_of(one));
  input.send = demand_of(setup.attr("send"));
  input.receive = demand_of(setup.attr("receive"));
  input.hand = demand_of(setup.attr("hand"));
  input.update = demand_of(setup.attr("update"));
  input.steps = nb::cast<int>(setup.attr("steps"));
  input.spins = nb::cast<bool>(setup.attr("spins"));
  return input;
}

void bind_replay(nb::module_& module) {
  module.def(
      "replay",
      [](nb::handle setup) {
        const predict::DataLoaderInput input = input_of(setup);
        const nb::gil_scoped_release others_run;
        const predict::DataLoaderOutput rates = predict::replay(input);
        return std::tuple(rates.images_per_s, rates.load_s, rates.update_s);
      },
      nb::arg("setup"));
  module.def(
      "work_share",
      [](nb::handle setup, double update_s) {
        const predict::DataLoaderInput input = input_of(setup);
        const nb::gil_scoped_release others_run;
        return predict::work_share(input, update_s);
      },
      nb::arg("setup"), nb::arg("update_s"));
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

}  // namespace
}  // namespace millrace::python

NB_MODULE(_predict, module) {
  millrace::python::bind_replay(module);
  millrace::python::bind_verification(module);
  millrace::python::bind_statistics(module);
}
