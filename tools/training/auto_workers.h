// loader.workers=auto: watches a run's first steps, asks the replay how many workers suffice for
// this device, and continues with that number. The batches stay the same (contract Determinism).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/loader.h"
#include "predict/loader_replay.h"
#include "strategies/trainer/trainer.h"
#include "study/records/summary.h"

namespace millrace::tools {

struct AutoWorkersFacts {
  LoaderOptions options;  ///< the loader's initial options
  std::uint64_t samples = 0;
  int cores = 1;           ///< cores of this process's share of the host
  int device_threads = 0;  ///< CPU threads of an update; 0: the device takes no CPU
};

class AutoWorkers final : public train::TrainObserver {
 public:
  using Tracks = std::function<std::shared_ptr<measure::LoaderTracks>(int workers)>;

  /// Passes all events on to `next`. `tracks` returns the timeline's tracks for a number of
  /// workers; may be null.
  AutoWorkers(train::TrainObserver& next, Loader& loader, AutoWorkersFacts facts, Tracks tracks);

  void batch(const Batch& batch, base::Clock::Ticks load) override { next_.batch(batch, load); }
  void progress(const train::TrainProgress& now) override { next_.progress(now); }
  void step(const measure::StepRecord& record) override;
  void epoch(const train::EpochRecord& record) override { next_.epoch(record); }
  void checkpoint(const train::Position& position, const measure::StepRecord& open,
                  bool best) override {
    next_.checkpoint(position, open, best);
  }
  void finish_checkpoint() override { next_.finish_checkpoint(); }

  /// Returns the choice. `chosen` is not set if the run ended before.
  study::AutoWorkersRecord record() const;

 private:
  predict::ReplayInput measured() const;
  void decide();

  train::TrainObserver& next_;
  Loader& loader_;
  const AutoWorkersFacts facts_;
  const Tracks tracks_;
  const std::int64_t begin_ns_;
  std::vector<double> updates_, hosts_;  ///< seconds of the observed steps
  int chosen_ = -1;
  std::string why_;
};

}  // namespace millrace::tools
