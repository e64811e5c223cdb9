#include "predict/data_loader_prediction.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace millrace::predict {
namespace {

double rate_of(const DataLoaderInput& input) { return replay(input).images_per_s; }

DataLoaderInput with_demands(DataLoaderInput input, double fetch, double update) {
  for (Demand& one : input.fetch) one = one.scaled(fetch, fetch);
  input.update = input.update.scaled(update, update);
  return input;
}

/// Returns the loop with code that takes `factor` times its CPU time.
DataLoaderInput slowed_down(DataLoaderInput input, double factor) {
  for (Demand& one : input.fetch) one = one.scaled(factor, 1);
  for (Demand* one : {&input.send, &input.receive, &input.hand, &input.update})
    *one = one->scaled(factor, 1);
  return input;
}

/// Returns the loop with an update whose CPU time is all work.
DataLoaderInput as_measured(DataLoaderInput input, double spinning) {
  input.spins = false;
  input.update = input.update.scaled(spinning, 1);
  return input;
}

/// Returns the share of the cores beyond the first that `busy` threads take.
double beyond_first(double busy, int cores) {
  return cores > 1 ? std::clamp((busy - 1) / (cores - 1), 0.0, 1.0) : 0;
}

/// Returns how many threads compute at once if neither the trainer nor a worker waits for another.
double may_compute(const DataLoaderInput& input) {
  const Demand fetch = mean_of(input.fetch);
  return 1 + (fetch.cpu_s > 0 ? input.workers * fetch.cpu_s / fetch.seconds() : 0);
}

DataLoaderInput without_update(DataLoaderInput input) {
  input.update = {};
  return input;
}

}  // namespace

DataLoaderIntervals::DataLoaderIntervals(const DataLoaderInput& input, double measured,
                                         const Doubts& doubts)
    : input_(input),
      doubts_(doubts),
      base_(replay(input)),
      unexplained_(unexplained(kDataLoaderModelError, base_.images_per_s, measured)) {
  if (!(doubts.fetch > 0 || doubts.update > 0)) return;
  const double fetch = 1 + doubts.fetch;
  const double update = 1 + doubts.update;
  for (const auto& [of_fetch, of_update] :
       {std::pair(fetch, 1 / update), std::pair(1 / fetch, update)})
    ends_.push_back({of_fetch, of_update, rate_of(with_demands(input, of_fetch, of_update))});
}

RatioInterval DataLoaderIntervals::around(double ratio, const DataLoaderInput& changed) const {
  RatioInterval interval(ratio);
  for (const End& end : ends_)
    interval.include(rate_of(with_demands(changed, end.fetch, end.update)) / end.images_per_s);
  const auto include_slowdown = [&](double most, double share) {
    if (share == 0) return;
    interval.include(rate_of(slowed_down(changed, std::pow(most, share))) / base_.images_per_s);
  };
  const double busy = replay(changed).busy_cores;
  const int cores = changed.cores;
  include_slowdown(kMaxCrowding, beyond_first(may_compute(changed), cores) -
                                     beyond_first(may_compute(input_), cores));
  include_slowdown(kMaxCrowding, beyond_first(busy, cores) - beyond_first(base_.busy_cores, cores));
  include_slowdown(kMaxCooling, std::min(1.0, base_.busy_cores) - std::min(1.0, busy));
  if (changed.update.threads > 1 && changed.workers != input_.workers)
    interval.include(rate_of(as_measured(changed, doubts_.spinning)) /
                     rate_of(as_measured(input_, doubts_.spinning)));
  return interval.widened(unexplained_);
}

DataLoaderPredictor::DataLoaderPredictor(const DataLoaderInput& measured, const RecordedRun& run)
    : input_(run.update_s > 0 ? without_spinning(measured, run.update_s) : measured),
      run_(run),
      doubts_{run.fetch_error, run.update_error,
              input_.update.cpu_s > 0 ? measured.update.cpu_s / input_.update.cpu_s : 1},
      images_per_s_(rate_of(input_)),
      loader_images_per_s_(rate_of(without_update(input_))),
      loop_(input_, run.images_per_s, doubts_),
      loading_(without_update(input_), 0, doubts_) {}

std::vector<DataLoaderChange> DataLoaderPredictor::changes(const Paging& paging) const {
  return list_changes(input_, run_.blocked_in_dataset, paging);
}

PredictedRatio DataLoaderPredictor::predict(const DataLoaderChange& change) const {
  const double rate = rate_of(change.input);
  double ratio = rate / (change.loading_only ? loader_images_per_s_ : images_per_s_);
  // Faster storage delays nobody; in a replay, batches that meet differently may.
  if (change.argument.empty()) ratio = std::max(1.0, ratio);
  const RatioInterval interval =
      (change.loading_only ? loading_ : loop_).around(ratio, change.input);
  return {ratio, interval.low(), interval.high(),
          change.loading_only ? rate : rate_of(without_update(change.input))};
}

}  // namespace millrace::predict
