// Options of a strategy with a model.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "millrace/error.h"
#include "millrace/transform.h"
#include "models/options.h"
#include "strategies/control/rank.h"

namespace millrace::train {

/// Callbacks into the program for strategies with several ranks.
struct RankHooks {
  /// Set when a signal asks this process to stop, and by the strategy when another rank was asked.
  std::atomic<bool>* interrupted = nullptr;
  /// Called once the ranks watch each other. From then on the strategy handles interrupts, even
  /// while this rank waits for another.
  std::function<void()> watched = [] {};
  /// Ends the process, on a background thread, because another rank has failed, or because an
  /// interrupt ends the run where no step can be completed.
  std::function<void(const Error&)> leave;
};

/// All options of a strategy with a model. Plain data, because it crosses into the LibTorch
/// library.
struct StrategyOptions {
  std::string strategy = "single";  ///< single, data_parallel, ddp
  std::string model = "lenet5";
  ModelOptions model_options;
  std::string weights;  ///< safetensors file to start from; empty: initialise
  int classes = 10;
  int channels = 1;                     ///< channels of a sample
  Size input;                           ///< size of a sample
  DType dtype = DType::f32;             ///< element type of batches: f32, or u8 with `normalize`
  Layout layout = Layout::chw;          ///< order of a sample's elements in batches
  bool normalize = false;               ///< batches hold levels, which the strategy normalises
  std::vector<double> mean{0}, std{1};  ///< for that: one number or one per channel, on 0..1
  std::string device = "cpu";           ///< cpu, cuda, cuda:N
  int threads = 1;
  std::uint64_t seed = 0;
  std::string optimizer = "sgd";
  double momentum = 0;  ///< for sgd
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< for adam and adamw
  double weight_decay = 0;
  double clip = 0;                     ///< largest joint norm of all gradients; 0: no limit
  double label_smoothing = 0;          ///< probability spread over all classes
  double ema = 0;                      ///< decay of the averaged weights per step; 0: no average
  std::string amp = "off";             ///< off, bf16, f16
  std::string tf32 = "conv";           ///< CUDA: off, conv, on
  bool deterministic = false;          ///< CUDA: only algorithms that repeat their bits
  bool cudnn_benchmark = false;        ///< CUDA: cuDNN chooses algorithms by their time
  std::string channels_last = "auto";  ///< auto, on, off
  int replicas = 1;                    ///< for data_parallel
  bool sync_batchnorm = false;
  RankInfo rank;         ///< for ddp
  RankHooks hooks;       ///< for ddp
  double timeout = 300;  ///< ddp: seconds after which a silent rank counts as lost
  /// Size of the batches, over all ranks, whose forward and backward pass is captured as a CUDA
  /// graph; 0: none. For `single` on a CUDA device, and with graph_step for `ddp` too.
  std::int64_t graph_samples = 0;
  bool graph_step = false;   ///< the optimizer's step belongs to that graph
  int inflight = 0;          ///< most steps in flight on the device; 0: sync clock
  bool device_parts = true;  ///< record events between the parts of a step on a device
};

}  // namespace millrace::train
