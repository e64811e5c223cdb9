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

/// Returns the loop with waits for the interpreter's lock added to its demands, or taken out of
/// them. A loop, and a thread that makes batches ahead of it, wait for the lock as long as the
/// other one computes, at most.
DataLoaderInput with_lock(DataLoaderInput input, double sign) {
  const Demand fetch = mean_of(input.fetch);
  const double waits = fetch.cpu_s > 0 ? input.update.cpu_s * fetch.cpu_s / fetch.seconds() : 0;
  for (Demand& one : input.fetch) one.blocked_s = std::max(0.0, one.blocked_s + sign * waits);
  input.update.blocked_s = std::max(0.0, input.update.blocked_s + sign * fetch.cpu_s);
  return input;
}

/// Returns the loop as it is if its workers need no lock while they make a batch: threads that send
/// many tensors keep them waiting no longer than those that send few.
DataLoaderInput with_free_lock(DataLoaderInput input) {
  input.pause_s = std::min(input.pause_s, usual_pause(mean_of(input.fetch), kUsualTensors));
  return input;
}

/// Returns the share of the cores beyond the first that `busy` threads take.
double beyond_first(double busy, int cores) {
  return cores > 1 ? std::clamp((busy - 1) / (cores - 1), 0.0, 1.0) : 0;
}

/// Returns how many threads compute at once if neither the loop nor what makes batches beside it
/// waits for another.
double may_compute(const DataLoaderInput& input) {
  const Demand fetch = mean_of(input.fetch);
  const int makers = input.workers == 0 && input.ahead > 0 ? 1 : input.workers;
  return 1 + (fetch.cpu_s > 0 ? makers * fetch.cpu_s / fetch.seconds() : 0);
}

/// Returns the factor of CPU times, at its most, if `after` instead of `before` cores are busy and
/// slow each other down.
double most_crowding(double before, double after, int cores) {
  return std::pow(kMaxCrowding, beyond_first(after, cores) - beyond_first(before, cores));
}

/// Returns the factor of CPU times, at its most, if a core waits for less or more of the time.
double most_cooling(double before, double after) {
  return std::pow(kMaxCooling, std::min(1.0, before) - std::min(1.0, after));
}

/// Returns a recorded loop as it is replayed.
DataLoaderInput as_recorded(DataLoaderInput input, const RecordedRun& run) {
  input.pause_s = usual_pause(mean_of(input.fetch), input.tensors);
  input.tensor_wait_s = std::min(input.receive.blocked_s, tensor_wait(input.tensors));
  input.receive.blocked_s -= input.tensor_wait_s;
  return run.update_s > 0 ? without_spinning(input, run.update_s) : input;
}

DataLoaderInput without_update(DataLoaderInput input) {
  input.update = {};
  return input;
}

}  // namespace

DataLoaderRatios::DataLoaderRatios(const DataLoaderInput& input, double measured,
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

DataLoaderRatios::Slowdown DataLoaderRatios::slowdown(const DataLoaderInput& changed) const {
  const DataLoaderOutput found = replay(changed);
  const double crowding = most_crowding(base_.busy_cores, found.busy_cores, changed.cores);
  const double cooling = most_cooling(base_.busy_cores, found.busy_cores);
  return {crowding, cooling, std::sqrt(crowding * cooling), found.images_per_s};
}

double DataLoaderRatios::of(const DataLoaderInput& changed) const {
  return rate_of(slowed_down(changed, slowdown(changed).usual)) / base_.images_per_s;
}

RatioInterval DataLoaderRatios::with_interval(const DataLoaderInput& changed) const {
  const auto [crowding, cooling, usual, without_any] = slowdown(changed);
  const double ratio = rate_of(slowed_down(changed, usual)) / base_.images_per_s;
  double other = ratio;  // with another guess of what is waited for a lock
  if (changed.ahead > 0 && (changed.workers == 0) != (input_.workers == 0))
    other = rate_of(slowed_down(with_lock(changed, changed.workers == 0 ? 1 : -1), usual)) /
            base_.images_per_s;
  RatioInterval interval(std::sqrt(ratio * other));
  interval.include(ratio);
  interval.include(other);
  for (const End& end : ends_)
    interval.include(rate_of(slowed_down(with_demands(changed, end.fetch, end.update), usual)) /
                     end.images_per_s);
  interval.include(without_any / base_.images_per_s);
  const double may_crowd = most_crowding(may_compute(input_), may_compute(changed), changed.cores);
  for (const double factor : {crowding, cooling, may_crowd})
    interval.include(rate_of(slowed_down(changed, factor)) / base_.images_per_s);
  if (changed.tensor_wait_s > input_.tensor_wait_s) {
    DataLoaderInput without = changed;
    without.tensor_wait_s = input_.tensor_wait_s;
    interval.include(rate_of(slowed_down(without, usual)) / base_.images_per_s);
  }
  if (std::max(changed.tensors, input_.tensors) > kUsualTensors)
    interval.include(rate_of(slowed_down(with_free_lock(changed), usual)) /
                     rate_of(with_free_lock(input_)));
  if (changed.update.threads > 1 && changed.workers != input_.workers)
    interval.include(rate_of(as_measured(changed, doubts_.spinning)) /
                     rate_of(as_measured(input_, doubts_.spinning)));
  return interval.widened(unexplained_);
}

DataLoaderPredictor::DataLoaderPredictor(const DataLoaderInput& measured, const RecordedRun& run)
    : input_(as_recorded(measured, run)),
      run_(run),
      doubts_{run.fetch_error, run.update_error,
              input_.update.cpu_s > 0 ? measured.update.cpu_s / input_.update.cpu_s : 1},
      loop_(input_, run.images_per_s, doubts_),
      loading_(without_update(input_), 0, doubts_) {}

std::vector<DataLoaderChange> DataLoaderPredictor::changes(const Paging& paging) const {
  return list_changes(input_, run_.blocked_in_dataset, paging, run_.shards);
}

PredictedRatio DataLoaderPredictor::predict(const DataLoaderChange& change) const {
  const RatioInterval found = (change.loading_only ? loading_ : loop_).with_interval(change.input);
  // Faster storage delays nobody; in a replay, batches that meet differently may.
  const double ratio = change.argument.empty() ? std::max(1.0, found.ratio()) : found.ratio();
  return {ratio, found.low(), std::max(ratio, found.high()),
          loading_.images_per_s() * loading_.of(without_update(change.input))};
}

}  // namespace millrace::predict
