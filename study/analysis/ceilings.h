// Ceilings: the rate in images per second that each resource alone would allow, and which of them
// is the bound.
#pragma once

#include <string>
#include <vector>

#include "study/analysis/replay.h"

namespace millrace::study {

/// CPU seconds per sample of each stage, on an otherwise idle core.
struct StageDemand {
  double read_s = 0, decode_s = 0, augment_s = 0;
  double machinery_s = 0;  ///< CPU time of the flow graph around the stages
  double total() const { return read_s + decode_s + augment_s + machinery_s; }
};

struct Ceiling {
  std::string name;
  double images_per_s = 0;
};

/// Returns the ceilings in this order: device, storage, decode, augment (each stage alone on the
/// workers' cores), loader (all stages together), cores (shared by the loader, the device and the
/// trainer's own work). Resources that limit nothing are left out. Rates count every rank.
std::vector<Ceiling> ceilings(const ReplayInput& input, const StageDemand& demand);

/// Returns how many worker threads would keep the device busy if each had a core.
double workers_needed(const ReplayInput& input, const StageDemand& demand);

struct LowestCeiling {
  /// One of device, storage, decode, augment, cores, overhead.
  std::string name;
  double images_per_s = 0;  ///< the ceiling's rate
  std::string sentence;     ///< "decode-bound: ..."
};

/// Returns the lowest ceiling. If the loader is too slow, names the stage that demands most. Names
/// `cores` if the device's own CPU work leaves the loader too little, and `overhead` if the graph
/// and the trainer's records cost more than the stages. Without workers load and update take turns,
/// and the longer of the two is the bound.
LowestCeiling lowest_ceiling(const ReplayInput& input, const StageDemand& demand);

}  // namespace millrace::study
