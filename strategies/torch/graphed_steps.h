// A step's forward and backward pass as a graph: which batches run eagerly, when the graph is
// captured, and what it reads and writes from then on.
//
// As PyTorch's documentation asks for: some steps on a stream of their own first, so that libraries
// have made their workspaces and chosen their algorithms; then a capture without gradients, so that
// backward writes them to memory of the graph's own; then replays that read a batch from where the
// captured one lay. The warm-up steps are steps of the run, and the capture does no work: no step
// is lost and none is taken twice.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "pipeline/loader/spans.h"
#include "strategies/torch/device_graph.h"
#include "strategies/torch/device_streams.h"

namespace millrace::train {

class GraphedSteps {
 public:
  /// Forward and backward pass over images and targets. Returns the loss, without its graph of
  /// autograd, and leaves gradients in the parameters, which have none before. Enters forward and
  /// backward on the clock if there is one. Kept with the graph: it must not refer to its step.
  using Pass = std::function<torch::Tensor(
      const torch::Tensor& images, const torch::Tensor& targets, pipeline::SpanClock* spans)>;

  /// Eager steps of full size before the capture.
  static constexpr int kWarmUps = 3;

  /// `samples`: of the batches whose steps are captured. `streams` must outlive this.
  GraphedSteps(std::unique_ptr<DeviceGraph> graph, DeviceStreams& streams,
               std::vector<torch::Tensor> parameters, std::int64_t samples);

  /// What `pass` gives, by whichever way: the loss, which the next call may write over, and
  /// gradients in the parameters, which may be changed and dropped. Every call must bring the same
  /// `pass`. A replay is in the forward span. Throws RunError where the pass cannot be captured.
  torch::Tensor run(const torch::Tensor& images, const torch::Tensor& targets,
                    pipeline::SpanClock& spans, const Pass& pass);

 private:
  /// Whether a batch has the form of the one that is captured; the first full one decides.
  bool takes(const torch::Tensor& images, const torch::Tensor& targets);
  void capture(const Pass& pass);

  std::unique_ptr<DeviceGraph> graph_;
  DeviceStreams& streams_;
  std::vector<torch::Tensor> parameters_;
  std::int64_t samples_;
  int warm_ups_ = 0;
  torch::Tensor images_, targets_;        ///< what the graph reads
  torch::Tensor loss_;                    ///< what it writes; undefined until it is captured
  std::vector<torch::Tensor> gradients_;  ///< the same, a parameter each; undefined for some
};

}  // namespace millrace::train
