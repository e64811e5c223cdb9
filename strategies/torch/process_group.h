// The ranks of a distributed run, and what they tell each other: c10d's store, and its process
// group over Gloo for tensors in host memory, over NCCL for those on CUDA devices.
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "strategies/control/rank.h"
#include "strategies/torch/cuda_library.h"

namespace millrace::train {

class Peers {
 public:
  /// Meets the other ranks; `cuda`: of the device, null for the CPU. Throws UsageError where they
  /// do not agree on how many they are, RunError where the port is taken, rank 0 cannot be reached,
  /// or some have not come within `timeout`.
  Peers(const RankInfo& rank, const CudaLibrary* cuda, std::chrono::seconds timeout);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int rank() const { return info_.rank; }
  int world() const { return info_.world; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }

  /// Sums over all ranks, in place. All must call it in the same order.
  void sum(torch::Tensor& values) const;
  /// Rank 0's values for all, in place.
  void broadcast(const std::vector<torch::Tensor>& tensors) const;
  /// Every rank's text, by rank. All must call it in the same order.
  std::vector<std::string> gather(const std::string& mine);
  /// Rank 0's text for all.
  std::string tell(const std::string& text);

 private:
  std::string get(const std::string& key) const;
  void set(const std::string& key, const std::string& value) const;
  void meet();

  RankInfo info_;
  std::chrono::seconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int told_ = 0;  ///< texts so far
};

}  // namespace millrace::train
