// Distributed data parallel training.
#pragma once

#include <torch/torch.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "strategies/control/control_channel.h"
#include "strategies/torch/cuda_library.h"
#include "strategies/torch/peers.h"
#include "strategies/torch/step_graphs.h"
#include "strategies/torch/torch_strategy.h"

namespace millrace::train {

/// Distributed data parallel strategy: one process per rank, each with a slice of every batch.
/// c10d's Reducer sums gradients while backward still runs; it is the engine of PyTorch's
/// DistributedDataParallel (Li et al., "PyTorch Distributed", 2020).
class Ddp final : public TorchStrategy {
 public:
  /// Meets the other ranks, and starts all of them from rank 0's weights. Throws what Peers does.
  /// `streams` and `graph` replace the device's own, for tests.
  explicit Ddp(const StrategyOptions& options, std::unique_ptr<DeviceStreams> streams = nullptr,
               std::unique_ptr<DeviceGraph> graph = nullptr);
  ~Ddp() override;

  bool stopping(bool asked) const override;
  void end(const std::string& reason) override;
  std::vector<std::string> gather(const std::string& mine) override;
  void announce_records(std::uint64_t steps) override { peers_.announce(steps); }
  void wait_for_records(std::uint64_t steps) override { peers_.wait_for(steps); }
  std::vector<PeerWait> peer_waits() const override { return waits_.late(); }
  double network_wait_s() const override { return waits_.network_s(); }
  std::string device() const override;

 protected:
  Loss gradients(Batch& batch, const StepContext& place, measure::SpanClock& spans) override;
  void add_up(Totals& totals, measure::SpanClock& spans) override;
  void add_up(torch::Tensor& sums) override;
  void alive() override;
  void share_buffers() override;
  void clear_gradients() override;
  int rank() const override { return peers_.rank(); }

 private:
  /// Begins to exchange the ranks' states on arrival at a step: numbers of samples, whether a graph
  /// can take them, whether a rank was asked to stop, and which rank was late.
  void arrive(const Batch& batch, bool stop, measure::SpanClock& spans);
  /// Waits until all ranks have arrived, and reads their states.
  void await_arrivals(measure::SpanClock& spans);
  /// Returns whether this rank's graph can take the batch, if the batches of all ranks are full.
  bool could_replay(const Batch& batch);
  /// Runs a step with the sums over all ranks and the optimizer's as a graph.
  Loss whole_step(Batch& batch, const StepContext& place, measure::SpanClock& spans);
  /// Lets the next backward pass sum its gradients over all ranks.
  void prepare_sums();

  void sum(torch::Tensor& values) const;

  /// Collectives of a step for which the host waits. On a device there is only the first.
  enum Collective : std::size_t { kArrival, kGradients, kLoss, kCollectives };
  /// Notes that this rank entered a collective at `entered` and leaves it now.
  void leave(Collective which, base::Clock::Ticks entered, const measure::SpanClock& spans);
  /// Lets this rank's work count from `now` on.
  void count_work_from(base::Clock::Ticks now, const measure::SpanClock& spans);
  /// Attributes the waits since the previous arrival.
  void attribute_waits();

  Peers peers_;
  std::unique_ptr<ControlChannel> control_;
  /// A step is computed before the other ranks' states are known: where work is only submitted to a
  /// device, and no graph needs the ranks' consent.
  const bool arrives_ahead_;
  std::uint64_t step_ = 0;
  std::unique_ptr<c10d::Reducer> reducer_;
  std::unique_ptr<DeviceGraph> graph_;       ///< until the first full batch; null without graphs
  std::optional<StepGraphs> graphs_;         ///< from then on
  torch::Tensor arrivals_;                   ///< world x kColumns, f64
  c10::intrusive_ptr<c10d::Work> arriving_;  ///< the sum that fills them
  bool is_first_arrival_ = true;
  double samples_ = 0;  ///< samples of the step on all ranks
  bool all_could_replay_ = false;
  bool stop_agreed_ = false;

  /// Time since which work counts: when this rank left the last collective, or began it if it
  /// arrives ahead, as the ranks then leave at different times; 0: none so far.
  base::Clock::Ticks since_ = 0;
  measure::SpanTicks ticks_since_{};                    ///< values of the spans at that time
  std::array<double, kCollectives> work_{}, waited_{};  ///< seconds before and in each collective
  base::Clock::Ticks statistics_ticks_ = 0;             ///< in batch norm's collectives since then
  std::atomic<base::Clock::Ticks> last_bucket_{0};      ///< time when the last gradients were there
  PeerWaits waits_;
};

}  // namespace millrace::train
