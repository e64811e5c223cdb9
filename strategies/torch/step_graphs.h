// A whole training step as a graph, the optimizer's step included (train.cuda_graphs=step), and the
// capture that all graphs share.
//
// Batches are copied to where the graph reads them, without a copy between. While a step works on
// one batch, the next one is copied, so there are two blocks of memory, and a graph for each: a
// graph knows one address. The two share the memory of everything else, as they never run at a
// time.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "measure/spans.h"
#include "measure/step_record.h"
#include "strategies/torch/cuda_library.h"
#include "strategies/torch/device.h"

namespace millrace::train {

/// Captures `work` on the side stream, on which its warm-up ran. Throws RunError if a call in it
/// cannot be captured.
std::vector<torch::Tensor> capture_aside(DeviceGraph& graph, DeviceStreams& streams,
                                         const DeviceGraph::Work& work);

/// Eager steps of a run before a capture, in which libraries allocate their workspaces and choose
/// their algorithms.
inline constexpr int kGraphWarmUps = 3;

class StepGraphs {
 public:
  /// Work of a whole step on a batch, of which nothing is left but the loss. The graph keeps it, so
  /// it must not refer to its step. Enters spans on the clock if there is one.
  using Step = std::function<torch::Tensor(const Samples& samples, measure::SpanClock* spans)>;
  /// Copies a batch to `block` once `read` is reached. Returns its views there.
  using Send = std::function<Samples(torch::Tensor& block, DeviceMark& read)>;

  /// `samples`: size of the batches whose steps are captured. `streams` must outlive this object.
  StepGraphs(std::unique_ptr<DeviceGraph> graph, DeviceStreams& streams, torch::Device device,
             std::int64_t samples);

  /// Returns whether a batch has the captured form, which the first one of full size determines.
  /// Others must run eagerly.
  bool takes(const Batch& batch);
  /// Sends a batch that takes() accepts and runs `step` on it, eagerly or as a replay. Returns the
  /// loss, which the call after the next may overwrite. Every call must pass the same `step`. A
  /// replay counts as forward. Throws RunError if the step cannot be captured.
  torch::Tensor run(const Send& send, measure::SpanClock& spans, const Step& step);
  /// Returns what the last run() was besides a step.
  measure::SetUp last_set_up() const { return set_up_; }

 private:
  /// Determines the offsets in a batch's block.
  struct Form {
    std::int64_t bytes = 0, targets = 0, classes = 0;
    bool operator==(const Form&) const = default;
  };
  struct Input {
    std::unique_ptr<DeviceGraph> graph;
    torch::Tensor block;
    OwnedMark read;      ///< reached when the last step has read the block
    torch::Tensor loss;  ///< undefined until the capture
  };

  DeviceStreams& streams_;
  torch::Device device_;
  std::int64_t samples_;
  std::array<Input, 2> inputs_;
  std::size_t at_ = 0;  ///< input of the next step
  Form form_;
  int warm_ups_ = 0;
  measure::SetUp set_up_ = measure::SetUp::none;
};

}  // namespace millrace::train
