// How many images a second each resource would allow if nothing else held the run up, and which of
// them is the bound.
#pragma once

#include <string>
#include <vector>

#include "study/analysis/replay.h"

namespace millrace::study {

/// CPU seconds a sample of each stage, on a core that has nothing else to do.
struct StageDemand {
  double read_s = 0, decode_s = 0, augment_s = 0;
  double machinery_s = 0;  ///< the graph around them
  double total() const { return read_s + decode_s + augment_s + machinery_s; }
};

struct Ceiling {
  std::string name;
  double images_per_s = 0;
};

/// device, storage, decode, augment (each stage alone on the workers' cores), loader (all stages
/// together), cores (loader, device and the trainer's own work share them); those that limit
/// nothing are left out. In this order. Rates count every rank.
std::vector<Ceiling> ceilings(const ReplayInput& input, const StageDemand& demand);

/// Worker threads that would keep the device busy, were there a core for each.
double workers_needed(const ReplayInput& input, const StageDemand& demand);

struct LowestCeiling {
  /// device, storage, decode, augment, cores or overhead.
  std::string name;
  double images_per_s = 0;  ///< of that ceiling
  std::string sentence;     ///< "decode-bound: ..."
};

/// The lowest ceiling. Of a loader that is too slow, the stage that demands most; `cores` where the
/// device's own CPU work leaves the loader too little; `overhead` where the graph and the trainer's
/// records cost more than the stages. Without workers load and update take turns, and the longer of
/// the two is the bound.
LowestCeiling lowest_ceiling(const ReplayInput& input, const StageDemand& demand);

}  // namespace millrace::study
