// A training step as CUDA graphs: decides which batches run eagerly and when a graph is captured,
// and owns the memory that the graphs read and write.
//
// Follows PyTorch's documentation. Some steps run eagerly on a side stream first, so that libraries
// allocate their workspaces and choose their algorithms. The capture then starts without gradients,
// so that backward writes them to the graph's own memory. Replays read a batch from the memory of
// the captured one. Warm-up steps are steps of the run, and the capture does no work: no step is
// lost or taken twice.
//
// The optimizer's step may belong to the graph (train.cuda_graphs=step). Batches are then copied to
// where it reads them, without a copy between. While a step works on one batch, the next one is
// copied, so there are two blocks of memory, and a graph for each: a graph knows one address. The
// two share the memory of everything else, as they never run at a time. If the optimizer's step
// does not belong to it (train.cuda_graphs=on), gradients outlive the graph, and a second graph
// would have gradients of its own: there is one, to whose block each batch is copied on the device.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "measure/spans.h"
#include "measure/step_record.h"
#include "strategies/torch/cuda_library.h"
#include "strategies/torch/device.h"

namespace millrace::train {

/// Eager steps of a run before a capture, in which libraries allocate their workspaces and choose
/// their algorithms.
inline constexpr int kGraphWarmUps = 3;

class StepGraphs {
 public:
  /// The work on a batch. Returns the loss, detached from autograd. Starts without gradients, and
  /// leaves none but those of the parameters that the constructor has got. The graph keeps the
  /// function, so it must not refer to its step. Enters spans on the clock if there is one.
  using Step = std::function<torch::Tensor(const Samples& samples, measure::SpanClock* spans)>;
  /// Copies a batch to `block` and returns its views there. With `read`, earlier work has read the
  /// block once that is reached; otherwise the copy must be behind all earlier work.
  using Send = std::function<Samples(torch::Tensor& block, DeviceMark* read)>;

  /// `samples`: size of the batches whose steps are captured. `parameters`: those whose gradients a
  /// step leaves; none if the optimizer's step belongs to it. `streams` must outlive this object.
  StepGraphs(std::unique_ptr<DeviceGraph> graph, DeviceStreams& streams, torch::Device device,
             std::int64_t samples, std::vector<torch::Tensor> parameters = {});

  /// Returns whether a batch has the captured form, which the first one of full size determines.
  /// Others must run eagerly.
  bool takes(const Batch& batch);
  /// Sends a batch that takes() accepts and runs `step` on it, eagerly or as a replay. Returns the
  /// loss, which a later call may overwrite, the next one if gradients are left. These may be
  /// changed and dropped. Every call must pass the same `step`. A replay counts as forward. Throws
  /// RunError if the step cannot be captured.
  torch::Tensor run(const Send& send, measure::SpanClock& spans, const Step& step);
  /// Returns what the last run() was besides a step.
  measure::SetUp last_set_up() const { return set_up_; }
  /// Returns whether the optimizer's step belongs to the graphs.
  bool has_whole_step() const { return parameters_.empty(); }

 private:
  /// Determines the offsets in a batch's block.
  struct Form {
    std::int64_t bytes = 0, targets = 0, classes = 0;
    bool operator==(const Form&) const = default;
  };
  struct Input {
    std::unique_ptr<DeviceGraph> graph;
    torch::Tensor block;
    OwnedMark read;      ///< reached when the last step has read the block; null for a single input
    torch::Tensor loss;  ///< undefined until the capture
  };

  void capture(Input& input, const Samples& samples, const Step& step);

  DeviceStreams& streams_;
  torch::Device device_;
  std::int64_t samples_;
  std::vector<torch::Tensor> parameters_;
  std::vector<Input> inputs_;
  std::size_t at_ = 0;                    ///< input of the next step
  std::vector<torch::Tensor> gradients_;  ///< one per parameter, some undefined, after the capture
  Form form_;
  int warm_ups_ = 0;
  measure::SetUp set_up_ = measure::SetUp::none;
};

}  // namespace millrace::train
