// Changes to a torch DataLoader that are worth trying.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "predict/data_loader_replay.h"

namespace millrace::predict {

/// CPU seconds per batch that shared memory takes: in the worker, which provides its pages, and in
/// the trainer, which maps them and gives them back.
struct Paging {
  double make_s = 0;
  double take_s = 0;
};

/// One change and the loop with it.
struct DataLoaderChange {
  /// An argument of DataLoader and its value. Empty: storage twice as fast, which no argument
  /// gives.
  std::string argument{};
  std::int64_t value = 0;
  DataLoaderInput input{};
  bool loading_only = false;  ///< the update is left out, since it would change too
};

/// Returns for how many seconds next() waits for a worker's thread that hands over the tensors of a
/// batch, one after the other, where batches wait for next(). Where next() waits for batches it is
/// less, and does not matter. For the first tensor it is part of what the replay has without it
/// (docs/results/2026-11-30-tensors.md).
double tensor_wait(int tensors);

/// Returns the loop with another number of workers. Only batches of workers lie in shared memory.
DataLoaderInput with_workers(const DataLoaderInput& input, int workers, const Paging& paging);

/// Returns the changes that are tried: other numbers of workers, up to those that hide the load of
/// batches that wait for storage; other prefetch factors; storage twice as fast; half and twice as
/// many samples per batch. `blocked_in_dataset`: the data set's share, 0..1, of the time for which
/// fetching is blocked. `shards`: of the data set, which is as many workers as it can feed; 0:
/// unknown.
std::vector<DataLoaderChange> list_changes(const DataLoaderInput& input, double blocked_in_dataset,
                                           const Paging& paging, int shards);

}  // namespace millrace::predict
