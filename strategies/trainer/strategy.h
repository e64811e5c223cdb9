// Interface between the trainer and a strategy: steps, evaluation, weights. Independent of
// LibTorch, so that the loop and its clock are tested without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/private_api.h"
#include "measure/spans.h"
#include "measure/step_record.h"
#include "millrace/error.h"
#include "millrace/loader.h"
#include "models/options.h"
#include "strategies/control/rank.h"
#include "strategies/trainer/peer_waits.h"

namespace millrace::train {

/// Exact sums over an evaluation, without padding or dropped samples.
struct Evaluation {
  std::uint64_t images = 0;
  std::uint64_t failed = 0;  ///< samples that could not be loaded; not included in `images`
  double loss_sum = 0;       ///< sum of the samples' cross-entropies, in nats
  std::uint64_t top5 = 0;    ///< samples whose label is among the 5 largest logits
  std::vector<std::uint64_t> samples, correct;  ///< by label
  /// [label][prediction]; empty for more than kMaxConfused classes, because its size is their
  /// square.
  std::vector<std::vector<std::uint64_t>> confusion;

  static constexpr std::size_t kMaxConfused = 1024;
};

/// A model's answer for one sample of an evaluation.
struct Prediction {
  std::int64_t label = 0;
  std::int64_t predicted = 0;  ///< class with the largest logit
  double probability = 0;      ///< its softmax over all classes
};

/// Running counts over training batches, summed over ranks. Samples whose targets are probabilities
/// (mixup, cutmix) have no single right answer and are not counted.
struct TrainCounts {
  std::uint64_t samples = 0;
  std::uint64_t correct = 0;  ///< samples whose label got the largest logit in their step

  TrainCounts& operator+=(const TrainCounts& other) {
    samples += other.samples;
    correct += other.correct;
    return *this;
  }
};

/// A step's facts that the loop knows and a strategy needs.
struct StepContext {
  std::uint64_t step = 0;  ///< number of batches before it, over all epochs
  /// Samples of all batches that share an optimizer step (train.accumulate), over all ranks.
  std::int64_t window_samples = 0;
  bool opens = true;    ///< first of those batches
  bool updates = true;  ///< last of those batches: the optimizer acts after it
  double lr = 0.01;     ///< learning rate of that optimizer step
  bool stop = false;    ///< this process was asked to stop
};

/// A step's parts by the device's own events, in ticks.
struct DeviceParts {
  base::Clock::Ticks forward = 0;
  base::Clock::Ticks backward = 0;
  base::Clock::Ticks graph = 0;  ///< forward and backward as one CUDA graph, which has no events
  base::Clock::Ticks step = 0;   ///< the optimizer's, and the copy of the loss

  DeviceParts& operator+=(const DeviceParts& other) {
    forward += other.forward;
    backward += other.backward;
    graph += other.graph;
    step += other.step;
    return *this;
  }
};

/// A step that the device has finished.
struct FinishedStep {
  std::uint64_t step = 0;        ///< as StepContext::step
  std::optional<double> loss;    ///< mean over all ranks' samples; empty without a model or samples
  base::Clock::Ticks begin = 0;  ///< when the device began it, on the host's clock; 0 on the CPU
  base::Clock::Ticks end = 0;    ///< when the device ended it; 0 on the CPU
  std::optional<DeviceParts> parts = {};  ///< they add up to end - begin; empty if not measured
};

/// How often the device had run dry when another step was about to be submitted
/// (train.clock=async).
struct Submissions {
  std::uint64_t steps = 0;    ///< submissions that followed another without a wait for all work
  std::uint64_t starved = 0;  ///< those before which the device had finished everything
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  /// Runs forward and backward on one batch, which may be empty (count() is 0), then the
  /// optimizer's step if the place says so. Gives the batch back as soon as it is no longer read.
  /// Enters h2d, forward, backward, step, peer_wait and device_wait on `spans` as it goes, and
  /// leaves it in the last of them. With the sync clock the device has then finished; with the
  /// async one up to train.inflight steps, including this one, may be in flight. Throws RunError
  /// with the step if a loss is not a number.
  virtual void step(Batch batch, const StepContext& place, measure::SpanClock& spans) = 0;
  /// Returns the steps finished since the last call, in order, without waiting.
  virtual std::vector<FinishedStep> take_finished() = 0;
  /// Waits in device_wait until the device has finished all steps.
  virtual void drain(measure::SpanClock&) {}
  /// Returns the most batches that it holds at a time; LoaderOptions::held must match.
  virtual int batches_held() const { return 1; }
  /// Gives back batches that the device has copied. If more than `most` are left, waits for them in
  /// device_wait. Call it before asking for a batch.
  virtual void hold_at_most(std::size_t /*most*/, measure::SpanClock&) {}
  /// Returns the memory for batches; null: ordinary host memory.
  virtual std::shared_ptr<pipeline::SlotMemory> slot_memory() { return nullptr; }
  /// Returns the last step's samples on all ranks.
  virtual std::int64_t last_samples() const = 0;
  /// Returns what the last step has set up.
  virtual measure::SetUp last_set_up() const { return measure::SetUp::none; }
  /// Returns whether to stop before the next step. Several ranks agree on it, one step after one of
  /// them was asked (StepContext::stop).
  virtual bool stopping(bool asked) const { return asked; }
  /// Returns the mean loss over the samples since the last call; NaN without a model.
  virtual double take_train_loss() = 0;
  /// Returns the counts since the last call, over all ranks. The device must have finished all
  /// steps. All ranks must call it in the same order.
  virtual TrainCounts take_train_counts() { return {}; }
  /// Returns every rank's text, by rank. All must call it in the same order.
  virtual std::vector<std::string> gather(const std::string& mine) { return {mine}; }
  /// Returns what the other ranks have waited for each, by rank; empty for a single rank.
  virtual std::vector<PeerWait> peer_waits() const { return {}; }
  /// Returns the seconds that this rank has waited in collectives although no rank was late.
  virtual double network_wait_s() const { return 0; }
  /// Returns the samples that each replica of this process has been given; empty without replicas.
  virtual std::vector<std::uint64_t> replica_samples() const { return {}; }
  /// Ends the work with the strategy. On several ranks, tells the others that this one has not
  /// died; `reason` is its error, empty for a regular end.
  virtual void end(const std::string& reason) { static_cast<void>(reason); }
  /// Runs the model over every batch of `loader`. If a rank was asked to stop, covers only the
  /// batches that its loader still returned: images + failed is then less than the number of
  /// samples, on every rank. Empty without a model.
  virtual std::optional<Evaluation> evaluate(Loader& loader) = 0;
  /// Makes later evaluations call `each` for every sample of this process's loader, in its order.
  virtual void on_prediction(std::function<void(const Prediction&)> /*each*/) {}
  /// Writes a copy of the state into a checkpoint's folder. Throws RunError if a file cannot be
  /// completed.
  using Snapshot = std::function<void(const std::filesystem::path& folder)>;
  /// Copies the model and everything else that the next step depends on. Any thread may write the
  /// copy, as model.safetensors and files beside it, while training goes on. Its memory is used
  /// again for the next copy once the returned function is destroyed. Call it on every rank; only
  /// the first one gets a function.
  virtual Snapshot snapshot() = 0;
  /// Tells the first rank that this one's records are on disk up to `steps`. Any thread may call it
  /// on the other ranks.
  virtual void announce_records(std::uint64_t /*steps*/) {}
  /// Waits until all other ranks have announced their records up to `steps`, because a checkpoint
  /// counts only with them. Any thread may call it on the first rank. Throws RunError after
  /// train.timeout.
  virtual void wait_for_records(std::uint64_t /*steps*/) {}
  /// Writes the state before it returns. Call it on every rank.
  void save(const std::filesystem::path& folder) {
    if (const Snapshot write = snapshot()) write(folder);
  }
  /// Restores what a snapshot wrote: the next step has the same bits (contract Exact resumption).
  /// Throws DataError with the file if it is truncated or belongs to another model or optimizer.
  virtual void restore(const std::filesystem::path& folder) = 0;
  /// Returns the xxh3 of all parameters and buffers in the order of their names, as 16 hex digits.
  virtual std::string parameters_hash() = 0;
  /// Returns the number of trainable parameters.
  virtual std::uint64_t parameter_count() const = 0;
  /// Returns the counts so far; all 0 with the sync clock and on the CPU.
  virtual Submissions submissions() const { return {}; }
  /// Returns whether the times of FinishedStep cover work alone. Otherwise a device may have waited
  /// between them for the host to submit more of the step.
  virtual bool knows_device_work() const { return false; }
  /// Returns the device's peak memory in bytes so far; 0 on the CPU.
  virtual std::uint64_t peak_device_bytes() = 0;
  /// Returns the PCI bus id of the (first) device, "0000:1b:00.0", for NVML; empty if it has none.
  virtual std::string bus_id() const { return {}; }
  /// Describes what runs the steps: "cpu (1 thread)", "NVIDIA H200", "simulated (1.1 ms per step)".
  virtual std::string device() const = 0;
};

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

// A simulated accelerator: every step takes a set time and no CPU, so that a loader can be sized
// for a device that is not at hand.

/// `update_ms`: milliseconds per step, from the arrival of its batch. `inflight`: most steps in
/// flight, whose batches are held until they begin; 0: each call waits for its step
/// (train.clock=sync).
MILLRACE_PRIVATE_API std::unique_ptr<Strategy> make_simulated(double update_ms, int inflight = 0);

}  // namespace millrace::train
