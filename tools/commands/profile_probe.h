// Measures what loading demands, in this process with the loader alone: no device, and no storage
// to wait for. Takes CPU time, which a busy machine changes little.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/loader.h"
#include "millrace/recipe.h"
#include "study/analysis/ceilings.h"

namespace millrace::tools {

/// One measurement of a loader that never waits for its consumer.
struct ProbeFigures {
  double cpu_s = 0;  ///< CPU seconds per sample, all threads together
  /// Parts of cpu_s, in proportion to the stages' shares of the threads' time.
  double read_part = 0, decode_part = 0, augment_part = 0;
  double take_s = 0;  ///< the consumer's CPU seconds per batch (with workers)
  double spread = 0;  ///< relative deviation of a sample's demand, estimated from batches
                      ///< (workers=0)
};

class LoaderProbe {
 public:
  /// Throws what opening data and compiling the chain throw.
  LoaderProbe(const Recipe& recipe, std::shared_ptr<const Reader> reader);

  /// Runs for at least `seconds`, and to the end of an epoch if epochs are short, so that every
  /// sample takes part.
  ProbeFigures measure(int workers, double seconds) const;

  /// Returns the part of a recipe that loading depends on: recipes with equal text need one probe.
  static std::string key_of(const Recipe& recipe);

 private:
  std::shared_ptr<const Reader> reader_;
  std::shared_ptr<const Transform> transform_;
  LoaderOptions options_;
};

/// Returns sizes in bytes of up to 1,024 samples, spread evenly over the set.
std::vector<double> sample_sizes(const Reader& reader);

/// Returns relative demands with a mean of 1 and the given spread, for the replay: lognormal, like
/// the sizes of photos. Empty without a spread.
std::vector<double> demand_weights(double spread);

/// Returns the seconds from a wake-up call until the thread runs: half of a round trip between two
/// threads.
double wake_up_s();

}  // namespace millrace::tools
