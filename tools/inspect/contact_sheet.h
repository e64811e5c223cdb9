// Shows samples as the model sees them, side by side in one PNG, with the draws that made them.
#pragma once

#include <string>
#include <vector>

#include "tools/inspect/inspection.h"
#include "tools/training/pipeline_setup.h"

namespace millrace::tools {

struct ContactSheet {
  std::vector<Inspected> samples;
  std::string png;  ///< bytes of the PNG
  SampleSpec spec;  ///< shape of each picture
};

/// Draws the first `count` samples of the epoch for the recipe in `words` ([RECIPE] key=value ...),
/// processed up to the store but not normalised. Throws DeviceError if OpenCV, which draws, is
/// missing, and what opening the data set throws.
ContactSheet contact_sheet(std::vector<std::string> words, std::uint32_t epoch, bool eval,
                           std::size_t count, int columns, Plugins plugins = Plugins::asked);

}  // namespace millrace::tools
