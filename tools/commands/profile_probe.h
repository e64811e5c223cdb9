// What loading demands, measured in this process with the loader alone: no device, no storage to
// wait for. CPU time is what is taken, so that a busy machine changes little.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/loader.h"
#include "millrace/recipe.h"
#include "study/analysis/ceilings.h"

namespace millrace::tools {

/// One measurement of a loader that is never kept waiting.
struct ProbeFigures {
  double cpu_s = 0;  ///< of all its threads, a sample
  /// Parts of cpu_s, by the stages' share of the threads' time.
  double read_part = 0, decode_part = 0, augment_part = 0;
  double take_s = 0;  ///< the consumer's CPU time a batch (with workers)
  double spread = 0;  ///< of a sample's demand over its mean, guessed from batches (workers=0 only)
};

class LoaderProbe {
 public:
  /// Throws what opening data and compiling the chain throw.
  LoaderProbe(const Recipe& recipe, std::shared_ptr<const Reader> reader);

  /// Runs for `seconds` at least, and to an epoch's end where epochs are short, so that every
  /// sample has its part.
  ProbeFigures measure(int workers, double seconds) const;

  /// What of a recipe a loader's demand depends on: recipes with the same text need one probe.
  static std::string key_of(const Recipe& recipe);

 private:
  std::shared_ptr<const Reader> reader_;
  std::shared_ptr<const Transform> transform_;
  LoaderOptions options_;
};

/// Sizes of up to 1,024 samples, spread evenly over the set.
std::vector<double> sample_sizes(const Reader& reader);

/// Relative demands with a mean of 1 and the given spread, for the replay: lognormal, as sizes of
/// photos are. Empty without a spread.
std::vector<double> demand_weights(double spread);

/// Seconds from a thread's wake-up call to its going on: half of a round trip between two threads.
double wake_up_s();

}  // namespace millrace::tools
