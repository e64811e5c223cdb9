// The child's side of `plugins check`: what is tried, one step after the other. A step either
// returns what it saw, or throws what is wrong.
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

/// Why a check cannot be made.
struct Skip : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Step {
  std::string unit;
  std::string check;
  std::function<std::string()> run;  ///< what it saw; throws Defect or Skip
};

/// Everything that a unit's result may depend on.
struct Input {
  Size size{0, 0};
  int channels = 0;
  std::uint64_t seed = 0;  ///< of the draws and the pixels; of readers, the index
  std::string text() const;
};

/// What no result may depend on: where memory lies, how far rows are apart, what it held before.
struct Placement {
  Guarded::Near near = Guarded::Near::behind;
  int row_padding = 0;  ///< bytes between two rows
  std::uint8_t fill = 0;
};

/// What a call gave.
struct Outcome {
  millrace_status status = MILLRACE_OK;
  std::string error;
  std::vector<std::uint8_t> bytes;  ///< all that it wrote
  double ns = 0;                    ///< within the plugin
  bool same_as(const Outcome& other) const {
    return status == other.status && bytes == other.bytes;
  }
};

/// One thread's way to call a unit.
using Session = std::function<Outcome(const Input&, const Placement&)>;

/// A unit and what is tried with it.
struct Subject {
  const millrace_unit& unit;
  std::function<Session()> open;        ///< a new thread's session on the same instance
  std::function<void()> make_and_drop;  ///< create and destroy
  std::vector<Input> inputs;            ///< small ones
  std::vector<Input> costs;             ///< what is timed
};

/// Runs `function`, which calls into the plugin: throws Defect for an exception, a changed rounding
/// mode, locale or folder, and a status that the interface doesn't have or explain.
Outcome watched_call(plugins::CallContext& context,
                     const std::function<millrace_status()>& function);

/// Parameters with one of them at a bound of its range, or at each of its choices; the first entry
/// is the defaults.
struct Variant {
  std::string text;  ///< "degrees=180"
  Params params;
};
std::vector<Variant> variants_of(const millrace_unit& unit);

/// Same call twice, in other order, elsewhere in memory; on several threads at once; leaks; cost.
void add_common_steps(std::vector<Step>& steps, std::shared_ptr<Subject> subject,
                      const CheckOptions& options,
                      const std::function<void(const CheckCost&)>& cost);

/// Augmentations of every kind; decoders; readers.
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
