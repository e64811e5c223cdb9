// loader.workers=auto: watches a run's first steps, asks the replay how many workers are enough for
// this device, and goes on with so many. Which batches come is not touched (contract C1).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "millrace/loader.h"
#include "strategies/trainer/trainer.h"
#include "study/analysis/replay.h"

namespace millrace {

struct AutoWorkersFacts {
  LoaderOptions options;  ///< of the loader as it began
  std::uint64_t samples = 0;
  int cores = 1;           ///< of this process' part of the host
  int device_threads = 0;  ///< CPU threads of an update; 0: the device takes no CPU
};

class AutoWorkers final : public TrainObserver {
 public:
  using Tracks = std::function<std::shared_ptr<LoaderTracks>(int workers)>;

  /// Passes everything on to `next`. `tracks`: the timeline's, for so many workers, or null.
  AutoWorkers(TrainObserver& next, Loader& loader, AutoWorkersFacts facts, Tracks tracks);

  void batch(const Batch& batch, Clock::Ticks load) override { next_.batch(batch, load); }
  void progress(const TrainProgress& now) override { next_.progress(now); }
  void step(const StepRecord& record) override;
  void epoch(const EpochRecord& record) override { next_.epoch(record); }
  void checkpoint(const Position& position, const StepRecord& open, bool best) override {
    next_.checkpoint(position, open, best);
  }

  /// first, chosen, after_steps, why; chosen is null where the run was over before.
  nlohmann::ordered_json record() const;

 private:
  ReplayInput measured() const;
  void decide();

  TrainObserver& next_;
  Loader& loader_;
  const AutoWorkersFacts facts_;
  const Tracks tracks_;
  const std::int64_t begin_ns_;
  std::vector<double> updates_, hosts_;  ///< seconds, of the steps seen
  int chosen_ = -1;
  std::string why_;
};

}  // namespace millrace
