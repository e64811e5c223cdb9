// Samples as the model sees them, side by side in one PNG, with the draws that made them.
#pragma once

#include <string>
#include <vector>

#include "tools/inspect/inspection.h"
#include "tools/training/pipeline_setup.h"

namespace millrace::tools {

struct ContactSheet {
  std::vector<Inspected> samples;
  std::string png;  ///< the file's bytes
  SampleSpec spec;  ///< of a picture
};

/// The recipe that `words` ([RECIPE] key=value ...) give, up to the store but not normalised; the
/// first `count` samples of the epoch. Throws DeviceError where OpenCV, which draws, is missing,
/// and what opening the data set does.
ContactSheet contact_sheet(std::vector<std::string> words, std::uint32_t epoch, bool eval,
                           std::size_t count, int columns, Plugins plugins = Plugins::asked);

}  // namespace millrace::tools
