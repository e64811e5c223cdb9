// Checks of units, as steps that run one after another: guarded memory, the steps that all units
// have in common, and those of augmentations. `plugins check` runs them in a child process, the
// Python package in its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/rng.h"
#include "millrace/millrace.hpp"
#include "plugins/host/unit.h"

namespace millrace::probe {

// Memory between two guard pages, with a known pattern in the gaps. Accesses outside of it are
// caught at once by the pages, or by check(). Where no report_touches() reports the former, which
// end the process, the pages are a part of the gaps.

/// Reports what a check found wrong.
struct Defect : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Guarded {
 public:
  /// The guard page that the memory borders on, as closely as `align` allows.
  enum class Near { behind, before };

  /// `what` names the memory in messages ("the image") and must outlive it. All bytes start as
  /// `fill`.
  Guarded(const char* what, std::size_t size, Near near, std::uint8_t fill, std::size_t align = 1);
  ~Guarded();
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// Makes the bytes read-only, where report_touches() reports writes.
  void protect();
  /// Throws Defect if a byte of the gaps has changed.
  void check() const;

 private:
  std::uint8_t pattern(const std::uint8_t* at) const;

  const char* what_;
  std::size_t size_;
  std::uint8_t fill_;
  std::uint8_t* pages_;
  std::size_t mapped_;  ///< including the guard pages
  std::size_t closed_;  ///< bytes at either end that are inaccessible
  std::uint8_t* data_;
  int watched_;
};

/// From now on, an access to a guard page writes the line "failed\tREASON" to `descriptor` and ends
/// the process. Other faults end it as usual.
void report_touches(int descriptor);

/// One line of a report.
struct CheckLine {
  enum class State { ok, failed, skipped };
  std::string unit;   ///< empty: the whole plugin
  std::string check;  ///< "load", "images", "threads", ...
  State state = State::ok;
  std::string detail;  ///< one line, without tabs
  std::string text() const;
};

/// Returns "ok", "failed" or "skipped".
const char* name_of(CheckLine::State state);

/// Time of one call: the median of many.
struct CheckCost {
  std::string unit;
  std::string of;  ///< "224x224 RGB"
  double ns = 0;
};

struct Options {
  bool cost = false;                        ///< measures longer, and at more sizes
  bool may_reject = true;                   ///< whether an augmentation may reject some images
  const std::atomic<bool>* stop = nullptr;  ///< once set, the threads of a step end early
};

// Each step returns what it observed, or throws what is wrong.

/// Thrown if a check cannot be made.
struct Skip : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Step {
  std::string unit;
  std::string check;
  std::function<std::string()> run;  ///< returns what it observed; throws Defect or Skip
};

/// Runs a step. Returns its line.
CheckLine run(const Step& step);

/// Everything that a unit's result may depend on.
struct Input {
  Size size{0, 0};
  int channels = 0;
  std::uint64_t seed = 0;  ///< of the draws and the pixels; for readers, the index
  std::string text() const;
};

/// Everything that no result may depend on: where memory lies, the distance of rows, earlier
/// contents.
struct Placement {
  Guarded::Near near = Guarded::Near::behind;
  int row_padding = 0;  ///< bytes between two rows
  std::uint8_t fill = 0;
};

/// Result of a call.
struct Outcome {
  millrace_status status = MILLRACE_OK;
  std::string error;
  std::vector<std::uint8_t> bytes;  ///< all bytes that it wrote
  double ns = 0;                    ///< time inside the plugin
  bool same_as(const Outcome& other) const {
    return status == other.status && bytes == other.bytes;
  }
};

/// Calls a unit from one thread.
using Session = std::function<Outcome(const Input&, const Placement&)>;

/// A unit and the inputs to try it with.
struct Subject {
  const millrace_unit& unit;
  std::function<Session()> open;        ///< opens a new thread's session on the same instance
  std::function<void()> make_and_drop;  ///< creates and destroys an instance
  std::vector<Input> inputs;            ///< small inputs
  std::vector<Input> costs;             ///< inputs that are timed
};

/// Runs `function`, which calls into the plugin. Throws Defect for an exception, a changed rounding
/// mode, locale or folder, and for a status that the interface does not have or that is
/// unexplained.
Outcome watched_call(plugins::CallContext& context,
                     const std::function<millrace_status()>& function);

/// Parameters with one of them at a bound of its range, or at one of its choices. The first entry
/// holds the defaults.
struct Variant {
  std::string text;  ///< "degrees=180"
  Params params;
};
std::vector<Variant> variants_of(const millrace_unit& unit);

/// Adds steps that repeat a call, reorder calls, move memory, use several threads, look for leaks,
/// and measure cost.
void add_common_steps(std::vector<Step>& steps, const std::shared_ptr<Subject>& subject,
                      const Options& options, const std::function<void(const CheckCost&)>& cost);

/// Changes pixels one by one and looks where a pixel unit's result changes. Returns what it
/// observed. Throws Defect if that is beyond the declared reach.
std::string try_reach(const millrace_unit& unit);

/// Calls a batch unit on as many samples as it declares; for whole batches, on 2 to 8.
Outcome run_batch(const plugins::Unit& unit, const Input& input, const Placement& placement);
/// Changes samples one by one and looks which other samples or labels of the group change. Returns
/// what it observed. Throws Defect if only samples of a smaller group ever meet, so that the
/// declared one is too large.
std::string try_group(const millrace_unit& unit);

/// Adds the steps of an augmentation of any kind.
void add_augmentation_steps(std::vector<Step>& steps, const millrace_unit& unit,
                            const Options& options,
                            const std::function<void(const CheckCost&)>& cost);

// Shared by the steps that test augmentations: reproducible bytes, and the surroundings of a call.

/// Returns a reproducible byte.
inline std::uint8_t byte_of(std::uint64_t seed, std::uint64_t at) {
  return static_cast<std::uint8_t>(base::mix64(seed << 32 ^ at) >> 56);
}

/// A call's surroundings, with this input's draws. Members that may be null are null in some
/// placements.
struct Calling {
  Calling(const plugins::Unit& unit, const Input& input, const Placement& placement) {
    context.call.rng = base::stream({1, 0, input.seed}, base::op_id(unit.table().name));
    if (placement.row_padding == 0) return;
    context.call.report = [](millrace_call*, const char*, double) {};
    context.call.log = [](millrace_call*, const char*) {};
    context.call.cancelled = [](const millrace_call*) { return 0; };
  }
  void lend_scratch(std::size_t size, const Placement& placement) {
    if (size == 0) return;
    scratch = std::make_unique<Guarded>("the scratch", size, placement.near, placement.fill, 64);
    context.call.scratch = scratch->data();
    context.call.scratch_size = size;
  }
  void check() const {
    if (scratch != nullptr) scratch->check();
  }
  plugins::CallContext context;
  std::unique_ptr<Guarded> scratch;
};

}  // namespace millrace::probe
