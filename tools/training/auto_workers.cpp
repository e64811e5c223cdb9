// Watches first steps and applies the replay's advice.
#include "tools/training/auto_workers.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipeline/readers/storage.h"
#include "predict/interval.h"
#include "study/analysis/whatif.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

/// Steps and seconds for reliable medians; and the latest moment, at which a few steps suffice.
constexpr std::size_t kSteps = 24;
constexpr double kSeconds = 0.5;
constexpr std::size_t kFewSteps = 5;
constexpr double kLatest = 3;

}  // namespace

AutoWorkers::AutoWorkers(train::TrainObserver& next, Loader& loader, AutoWorkersFacts facts,
                         Tracks tracks)
    : next_(next),
      loader_(loader),
      facts_(std::move(facts)),
      tracks_(std::move(tracks)),
      begin_ns_(base::Clock::steady_ns()) {}

void AutoWorkers::step(const measure::StepRecord& record) {
  next_.step(record);
  if (chosen_ >= 0) return;
  const measure::SpanSeconds seconds(record.ticks);
  updates_.push_back(seconds.update);
  hosts_.push_back(seconds.each[static_cast<std::size_t>(measure::Span::log)]);
  const double passed = static_cast<double>(base::Clock::steady_ns() - begin_ns_) * 1e-9;
  const bool enough = updates_.size() >= kSteps && passed >= kSeconds;
  if (enough || (updates_.size() >= kFewSteps && passed >= kLatest)) decide();
}

predict::ReplayInput AutoWorkers::measured() const {
  const LoaderStats stats = loader_.stats();
  const LoaderOptions& options = facts_.options;
  const auto samples = static_cast<double>(std::max<std::uint64_t>(1, stats.augment.calls));
  const auto reads = static_cast<double>(std::max<std::uint64_t>(1, stats.read.calls));
  predict::ReplayInput in;
  in.cores = facts_.cores;
  in.workers = loader_.workers();
  in.io_threads = options.io_threads;
  in.prefetch = options.prefetch;
  in.batch = std::max<std::int64_t>(1, options.batch / options.world);
  in.samples = std::max(facts_.samples / static_cast<std::uint64_t>(options.world),
                        static_cast<std::uint64_t>(in.batch));
  in.drop_last = options.drop_last;
  in.grain = options.grain;
  in.sample_s = (stats.decode.cpu_s + stats.augment.cpu_s) / samples;
  in.read_s = stats.read.cpu_s / reads;
  in.update_s = predict::median(updates_);
  in.update_threads = facts_.device_threads;
  in.frees_early = facts_.device_threads == 0;
  in.host_s = predict::median(hosts_);
  const double wait = (stats.read.wall_s - stats.read.cpu_s) / reads;
  if (options.storage != nullptr) {
    const pipeline::StorageOptions& limits = options.storage->options();
    in.bytes = {static_cast<double>(stats.read.bytes) / reads};
    in.storage = {limits.bytes_per_s, limits.latency_s, limits.requests_per_s};
  } else if (wait > in.sample_s / 10) {  // a real storage is known only by the time that reads took
    in.bytes = {1};
    in.storage.latency_s = wait;
  }
  in.warm_up = 16;
  in.steps = 48;
  return in;
}

void AutoWorkers::decide() {
  const predict::ReplayInput in = measured();
  // More workers than cores help only if they wait for storage without contention.
  const bool waits = in.storage.limited() && in.io_threads == 0;
  const study::Advice advice =
      study::advise(in, std::min(waits ? 4 * in.cores : in.cores, 32), in.sample_s, 0.95);
  const int first = loader_.workers();
  chosen_ = std::max(1, advice.workers);  // without workers the device would have to wait
  why_ = fmt::format(
      "one sample takes {:.3g} ms of CPU time, the update of a batch of {} takes {:.3g} ms: {} of "
      "at most "
      "{} images/s on {} cores",
      1e3 * (in.sample_s + in.read_s), in.batch, 1e3 * in.update_s,
      with_commas(advice.images_per_s), with_commas(advice.best_images_per_s), in.cores);
  say(fmt::format("loader.workers=auto: {} (until step {}: {}); {}", chosen_, updates_.size(),
                  first, why_));
  if (chosen_ != first) loader_.restart(chosen_, tracks_(chosen_));
}

study::AutoWorkersRecord AutoWorkers::record() const {
  study::AutoWorkersRecord record{.first = facts_.options.workers, .after_steps = 0, .why = why_};
  if (chosen_ < 0) return record;
  record.chosen = chosen_;
  record.after_steps = updates_.size();
  return record;
}

}  // namespace millrace::tools
