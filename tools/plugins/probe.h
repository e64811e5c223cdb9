// Child's side of `plugins check`: the steps, one after another. Each step returns what it
// observed, or throws what is wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/millrace.hpp"
#include "plugins/host/unit.h"
#include "tools/plugins/check.h"
#include "tools/plugins/guarded.h"

namespace millrace::tools {

/// Thrown if a check cannot be made.
struct Skip : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Step {
  std::string unit;
  std::string check;
  std::function<std::string()> run;  ///< returns what it observed; throws Defect or Skip
};

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
                      const CheckOptions& options,
                      const std::function<void(const CheckCost&)>& cost);

/// Changes pixels one by one and looks where a pixel unit's result changes. Returns what it
/// observed. Throws Defect if that is beyond the declared reach.
std::string try_reach(const millrace_unit& unit);

/// Calls a batch unit on as many samples as it declares; for whole batches, on 2 to 8.
Outcome run_batch(const plugins::Unit& unit, const Input& input, const Placement& placement);
/// Changes samples one by one and looks which other samples or labels of the group change. Returns
/// what it observed. Throws Defect if only samples of a smaller group ever meet, so that the
/// declared one is too large.
std::string try_group(const millrace_unit& unit);

/// Add the steps of augmentations of every kind, of decoders and of readers.
void add_image_steps(std::vector<Step>& steps, const millrace_unit& unit,
                     const CheckOptions& options,
                     const std::function<void(const CheckCost&)>& cost);
void add_decoder_steps(std::vector<Step>& steps, const millrace_unit& unit,
                       const CheckOptions& options,
                       const std::function<void(const CheckCost&)>& cost);
void add_reader_steps(std::vector<Step>& steps, const millrace_unit& unit,
                      const CheckOptions& options,
                      const std::function<void(const CheckCost&)>& cost);

}  // namespace millrace::tools
