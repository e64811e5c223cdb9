// Distributed data parallel strategy: one process per rank, each with a slice of every batch.
// c10d's Reducer sums gradients while backward still runs; it is the engine of PyTorch's
// DistributedDataParallel (Li et al., "PyTorch Distributed", 2020).
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "strategies/control/control_channel.h"
#include "strategies/torch/process_group.h"
#include "strategies/torch/torch_strategy.h"

namespace millrace::train {

class Ddp final : public TorchStrategy {
 public:
  /// Meets the other ranks, and starts all of them from rank 0's weights. Throws what Peers does.
  explicit Ddp(const StrategyOptions& options);
  ~Ddp() override;

  bool stopping(bool asked) const override;
  void end(const std::string& reason) override;
  std::vector<std::string> gather(const std::string& mine) override;
  std::vector<PeerWait> peer_waits() const override { return peer_waits_; }
  std::string device() const override;

 protected:
  Loss gradients(Batch& batch, const StepContext& place, pipeline::SpanClock& spans) override;
  void add_up(Totals& totals, pipeline::SpanClock& spans) override;
  void add_up(torch::Tensor& sums) override;
  void alive() override;
  void share_buffers() override;
  void clear_gradients() override;
  int rank() const override { return peers_.rank(); }

 private:
  /// Exchanges the ranks' states on arrival at a step: numbers of samples, whether a rank was asked
  /// to stop, and which rank was late.
  void arrive(std::int64_t samples, bool stop, pipeline::SpanClock& spans);

  void sum(torch::Tensor& values) const;

  Peers peers_;
  std::unique_ptr<ControlChannel> control_;
  std::uint64_t step_ = 0;
  std::unique_ptr<c10d::Reducer> reducer_;
  torch::Tensor arrivals_;  ///< world x kColumns, f64
  double samples_ = 0;      ///< samples of the step on all ranks
  bool stop_agreed_ = false;
  base::Clock::Ticks since_ = 0;       ///< time when all had arrived at the previous step
  pipeline::SpanTicks ticks_since_{};  ///< values of the spans at that time
  std::vector<PeerWait> peer_waits_;   ///< seconds that the others have waited for each rank
};

}  // namespace millrace::train
