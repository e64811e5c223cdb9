#include "predict/data_loader_changes.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace millrace::predict {
namespace {

constexpr int kMaxOffered = 128;  ///< workers for batches that wait for storage
/// Share of a batch's time blocked in the data set from which storage counts.
constexpr double kStorageThatCounts = 0.05;
constexpr double kTensorWaitS = 0.00035;  ///< per tensor
constexpr int kTensorsWithoutWait = 1;

/// Returns numbers of workers above 2, up to the one that hides the load of batches that wait,
/// which may exceed the cores.
std::vector<int> that_wait(const DataLoaderInput& input) {
  const Demand fetch = mean_of(input.fetch);
  if (fetch.blocked_s <= kStorageThatCounts * fetch.seconds()) return {};
  const double next = input.hand.seconds() + input.receive.cpu_s + tensor_wait(input.tensors);
  const double update = input.update.seconds();
  const double trainer = input.ahead > 0 ? std::max(next, update) : next + update;
  const double cpu = fetch.cpu_s + input.send.cpu_s + input.receive.cpu_s + input.hand.cpu_s +
                     input.update.threads * input.update.cpu_s;
  const double step = std::max(trainer, cpu / input.cores);
  const double hides = std::ceil(fetch.seconds() / step) + 1;  // infinite for a step of no time
  const int most = static_cast<int>(std::min<double>(hides, kMaxOffered));
  std::vector<int> found;
  for (int workers = 4; workers < most; workers *= 2) found.push_back(workers);
  if (most >= 4) found.push_back(most);
  return found;
}

}  // namespace

double tensor_wait(int tensors) {
  return kTensorWaitS * std::max(0, tensors - kTensorsWithoutWait);
}

DataLoaderInput with_workers(const DataLoaderInput& input, int workers, const Paging& paging) {
  const int added = (workers > 0 ? 1 : 0) - (input.workers > 0 ? 1 : 0);
  DataLoaderInput with = input;
  with.workers = workers;
  for (Demand& one : with.fetch) one.cpu_s = std::max(0.0, one.cpu_s + added * paging.make_s);
  with.update.cpu_s = std::max(0.0, with.update.cpu_s + added * paging.take_s);
  with.tensor_wait_s = workers > 0 ? tensor_wait(input.tensors) : 0;
  return with;
}

std::vector<DataLoaderChange> list_changes(const DataLoaderInput& input, double blocked_in_dataset,
                                           const Paging& paging, int shards) {
  std::vector<DataLoaderChange> all;
  const std::vector<int> waiting = that_wait(input);
  const int most =
      std::max({2 * input.cores, 2 * input.workers, waiting.empty() ? 0 : waiting.back()});
  std::set<int> workers{0, 1, 2, input.workers + 1, 2 * input.workers, input.cores};
  workers.insert(waiting.begin(), waiting.end());
  workers.erase(workers.upper_bound(most), workers.end());
  if (shards > 0 && *workers.rbegin() > shards) {
    workers.erase(workers.upper_bound(shards), workers.end());
    workers.insert(shards);
  }
  workers.erase(input.workers);
  for (const int one : workers)
    all.push_back({"num_workers", one, with_workers(input, one, paging)});
  if (input.workers > 0) {
    for (const int one : {1, 2, 4, 8}) {
      if (one == input.prefetch) continue;
      all.push_back({"prefetch_factor", one, input});
      all.back().input.prefetch = one;
    }
  }
  const Demand fetch = mean_of(input.fetch);
  if (blocked_in_dataset * fetch.blocked_s > kStorageThatCounts * fetch.seconds()) {
    all.push_back({.input = input});
    for (Demand& one : all.back().input.fetch) one.blocked_s *= 1 - 0.5 * blocked_in_dataset;
  }
  for (const std::int64_t one : {input.batch / 2, 2 * input.batch}) {
    if (one < 1) continue;
    const double factor = static_cast<double>(one) / static_cast<double>(input.batch);
    all.push_back({"batch_size", one, input, true});
    DataLoaderInput& with = all.back().input;
    with.batch = one;
    for (Demand& each : with.fetch) each = each.scaled(factor, factor);
    with.send = with.send.scaled(factor, factor);
    with.receive = with.receive.scaled(factor, factor);
    with.update = {};
  }
  return all;
}

}  // namespace millrace::predict
