#include "python/ext/check.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/error.h"
#include "probe/probe.h"
#include "python/ext/augmentation.h"
#include "python/ext/gil.h"
#include "python/ext/interrupt.h"

namespace nb = nanobind;

namespace millrace::python {
namespace {

/// The steps for one function. Ctrl-C ends a step, also one that runs several threads.
class Checks {
 public:
  /// `may_raise`: the function may reject images. Throws UsageError if no function has that name.
  Checks(const std::string& name, bool may_raise) {
    const millrace_unit* unit = unit_of(name);
    if (unit == nullptr)
      throw UsageError(fmt::format("no augmentation in Python is called {}", name),
                       "import the module that defines it");
    probe::Options options;
    options.may_reject = may_raise;
    options.stop = &interrupts_.stop;
    probe::add_augmentation_steps(steps_, *unit, options, [](const probe::CheckCost&) {});
  }

  /// Runs the next step. Returns whether it failed, and its line; nothing after the last step.
  std::optional<std::pair<bool, std::string>> next() {
    if (done_ == steps_.size()) return std::nullopt;
    const probe::Step& step = steps_[done_++];
    const ReleasedGil released;
    const probe::CheckLine line =
        run_interruptibly(interrupts_, [&step] { return probe::run(step); });
    return std::pair(line.state == probe::CheckLine::State::failed, line.text());
  }

 private:
  Interrupts interrupts_;
  std::vector<probe::Step> steps_;
  std::size_t done_ = 0;
};

}  // namespace

void bind_check(nb::module_& module) {
  nb::class_<Checks>(module, "Checks")
      .def(nb::init<const std::string&, bool>(), nb::arg("name"), nb::arg("may_raise"))
      .def("next", &Checks::next, nb::lock_self());
}

}  // namespace millrace::python
