// The other ranks of a distributed run: the rendezvous, and the collectives through c10d.
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "strategies/control/rank.h"
#include "strategies/torch/cuda_library.h"

namespace millrace::train {

/// Ranks of a distributed run and their collectives: c10d's store, and its process group, over Gloo
/// for tensors in host memory and over NCCL for tensors on CUDA devices.
class Peers {
 public:
  /// Meets the other ranks. `cuda` is the device's module; null for the CPU. Throws UsageError if
  /// the ranks disagree on the world size, and RunError if the port is taken, rank 0 cannot be
  /// reached, or some ranks do not arrive within `timeout`.
  Peers(const RankInfo& rank, const CudaLibrary* cuda, std::chrono::seconds timeout);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int rank() const { return info_.rank; }
  int world() const { return info_.world; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }

  /// Sums over all ranks, in place. All must call it in the same order.
  void sum(torch::Tensor& values) const;
  /// Begins a sum over all ranks, which keeps `values` alive and writes them until it is waited
  /// for.
  c10::intrusive_ptr<c10d::Work> begin_sum(const torch::Tensor& values) const;
  /// Copies rank 0's values to all ranks, in place.
  void broadcast(const std::vector<torch::Tensor>& tensors) const;
  // The calls below throw RunError if rank 0 is gone.

  /// Returns every rank's text, by rank. All must call it in the same order.
  std::vector<std::string> gather(const std::string& mine);
  /// Returns rank 0's text on all ranks.
  std::string tell(const std::string& text);
  /// Sets this rank's count, which only rises. Any thread may call it.
  void announce(std::uint64_t count) const;
  /// Waits until the counts of all ranks but the first are at least `count`. Any thread may call
  /// it. Throws RunError with the first rank that is late after the time-out.
  void wait_for(std::uint64_t count) const;

 private:
  /// Runs a call to the store. Throws RunError if rank 0, which serves it, is gone.
  template <class Call>
  auto with_store(const Call& call) const;
  std::string get(const std::string& key) const;
  void set(const std::string& key, const std::string& value) const;
  void meet();

  RankInfo info_;
  std::chrono::seconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int told_ = 0;  ///< number of texts so far
};

}  // namespace millrace::train
