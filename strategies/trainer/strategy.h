// What the trainer asks of a strategy: steps, evaluation, weights. Free of LibTorch, so that the
// loop and its clock are tested without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/error.h"
#include "millrace/loader.h"
#include "models/options.h"
#include "pipeline/loader/spans.h"
#include "strategies/control/rank.h"

namespace millrace::train {

/// Exact sums over an evaluation (no padding, nothing dropped).
struct Evaluation {
  std::uint64_t images = 0;
  std::uint64_t failed = 0;  ///< samples that could not be loaded; they are not in `images`
  double loss_sum = 0;       ///< of the samples' cross-entropies, in nats
  std::uint64_t top5 = 0;    ///< samples whose label is among the 5 largest logits
  std::vector<std::uint64_t> samples, correct;  ///< by label
  /// [label][prediction]; empty for more than kMaxConfused classes, as it grows with their square.
  std::vector<std::vector<std::uint64_t>> confusion;

  static constexpr std::size_t kMaxConfused = 1024;
};

/// Seconds that other ranks have waited for one, by what it was longer in than they were.
struct BlamedWait {
  double load = 0, update = 0, other = 0;
  double total() const { return load + update + other; }
};
/// Adds what a rank that took `mine` (seconds of each kind since all left together, without waiting
/// for others) has waited for the `late` one, `seconds` in all, to `sum`: to each kind in
/// proportion to how much longer the late rank was in it.
void blame_wait(double seconds, const BlamedWait& late, const BlamedWait& mine, BlamedWait& sum);

/// What the loop knows of a step and a strategy needs.
struct StepContext {
  std::uint64_t step = 0;  ///< batches before it, over all epochs
  /// Samples of all the batches that share an optimiser step (train.accumulate), over all ranks.
  std::int64_t window_samples = 0;
  bool opens = true;    ///< the first of those batches
  bool updates = true;  ///< the last of them: the optimiser acts after it
  double lr = 0.01;     ///< of that optimiser step
  bool stop = false;    ///< this process was asked to stop
};

/// A step that the device has finished.
struct FinishedStep {
  std::uint64_t step = 0;        ///< as in StepContext
  std::optional<double> loss;    ///< mean over all ranks' samples; empty: no model, or no samples
  base::Clock::Ticks begin = 0;  ///< of the device's work on it, on the host's clock; both 0 where
  base::Clock::Ticks end = 0;    ///< the host is the device
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  /// Forward and backward on one batch, of which there may be nothing (count() is 0), then the
  /// optimiser's step if the place says so. Gives the batch back as soon as it is no longer read.
  /// Enters h2d, forward, backward, step, peer_wait and device_wait on `spans` as it goes through
  /// them and leaves it in the last of them. By the sync clock the device has then finished; by the
  /// async one it may have train.inflight steps to do, this one among them. Throws RunError, naming
  /// the step, for a loss that is not a number.
  virtual void step(Batch batch, const StepContext& place, pipeline::SpanClock& spans) = 0;
  /// Steps that were finished since the last call, in their order; waits for nothing.
  virtual std::vector<FinishedStep> take_finished() = 0;
  /// Waits, in device_wait, until the device has finished all steps.
  virtual void drain(pipeline::SpanClock&) {}
  /// Batches that it may hold at a time: what LoaderOptions::held must be.
  virtual int batches_held() const { return 1; }
  /// To be called before a batch is asked for. Gives back batches that the device has copied; where
  /// more than `most` are left, waits for them in device_wait.
  virtual void hold_at_most(std::size_t /*most*/, pipeline::SpanClock&) {}
  /// Memory that batches should lie in; null: the host's ordinary.
  virtual std::shared_ptr<pipeline::SlotMemory> slot_memory() { return nullptr; }
  /// Samples of the last step on all ranks.
  virtual std::int64_t last_samples() const = 0;
  /// Whether to stop before the next step: on several ranks they agree, one step after one of them
  /// was asked to (StepContext::stop).
  virtual bool stopping(bool asked) const { return asked; }
  /// Mean loss over the samples since the last call; NaN where there is no model.
  virtual double take_train_loss() = 0;
  /// Every rank's text, by rank; all of them must ask in the same order.
  virtual std::vector<std::string> gather(const std::string& mine) { return {mine}; }
  /// What the other ranks have waited for each, by rank; empty where there is one.
  virtual std::vector<BlamedWait> blamed_waits() const { return {}; }
  /// The end of the work with it: on several ranks, the others then know that this one has not
  /// died, and why it goes: `reason` is its error, empty for a good end.
  virtual void end(const std::string& reason) { static_cast<void>(reason); }
  /// Runs the model over every batch of `loader`; where one of the ranks has been asked to stop,
  /// over those that its loader still gave: images + failed is then less than there are samples, on
  /// every rank. Empty where there is no model.
  virtual std::optional<Evaluation> evaluate(Loader& loader) = 0;
  /// Writes model.safetensors and all else that the next step depends on into a checkpoint's
  /// folder. To be called on every rank; the first of them writes. Throws RunError when a file
  /// cannot be completed.
  virtual void save(const std::filesystem::path& folder) = 0;
  /// Takes up where save() left off: the next step has the same bits. Throws DataError, naming the
  /// file, for what is cut short or of another model or optimiser.
  virtual void restore(const std::filesystem::path& folder) = 0;
  /// xxh3 of all parameters and buffers in the order of their names, 16 hex digits.
  virtual std::string parameters_hash() = 0;
  /// Number of trainable parameters.
  virtual std::uint64_t parameter_count() const = 0;
  /// Most memory the device held so far; 0 on the CPU.
  virtual std::uint64_t peak_device_bytes() = 0;
  /// PCI bus id of the (first) device, "0000:1b:00.0", for NVML; empty where it has none.
  virtual std::string bus_id() const { return {}; }
  /// What runs the steps, in words: "cpu (1 thread)", "NVIDIA H200", "simulated (1.1 ms a step)".
  virtual std::string device() const = 0;
};

/// Callbacks into the program for a strategy with several ranks.
struct RankHooks {
  /// A signal asks this process to stop; the strategy sets it where another rank was asked.
  std::atomic<bool>* interrupted = nullptr;
  /// Called once the ranks watch each other: from then on the strategy sees to interrupts, also
  /// while this rank waits for another one.
  std::function<void()> watched = [] {};
  /// Ends the process, on a background thread: another rank has failed, or an interrupt ends the
  /// run where no step can be completed.
  std::function<void(const Error&)> leave;
};

/// Everything a strategy with a model needs to know. Plain data: crosses into the LibTorch library.
struct StrategyOptions {
  std::string strategy = "single";  ///< single, data_parallel, ddp
  std::string model = "lenet5";
  ModelOptions model_options;
  std::string weights;  ///< safetensors file to start from; empty: initialise
  int classes = 10;
  int channels = 1;                     ///< of a sample
  Size input;                           ///< of a sample
  DType dtype = DType::f32;             ///< of the batches: f32, or with `normalize` u8
  bool normalize = false;               ///< batches hold levels, of which the strategy makes f32
  std::vector<double> mean{0}, std{1};  ///< for that: one number, or one a channel, on 0..1
  std::string device = "cpu";           ///< cpu, cuda, cuda:N
  int threads = 1;
  std::uint64_t seed = 0;
  std::string optimizer = "sgd";
  double momentum = 0;  ///< sgd
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< adam, adamw
  double weight_decay = 0;
  double clip = 0;                     ///< largest norm of all gradients together; 0: any
  double label_smoothing = 0;          ///< part of the target spread over all classes
  double ema = 0;                      ///< decay a step of the averaged weights; 0: none are kept
  std::string amp = "off";             ///< off, bf16, f16
  std::string tf32 = "conv";           ///< CUDA: off, conv, on
  std::string channels_last = "auto";  ///< auto, on, off
  int replicas = 1;                    ///< data_parallel
  bool sync_batchnorm = false;
  RankInfo rank;         ///< ddp
  RankHooks hooks;       ///< ddp
  double timeout = 300;  ///< ddp: seconds after which a silent rank counts as lost
  /// Of the batches whose forward and backward pass are captured as a CUDA graph; 0: none are. For
  /// `single` on a CUDA device.
  std::int64_t graph_samples = 0;
  int inflight = 0;  ///< steps that the device may have to do at a time; 0: the sync clock
};

}  // namespace millrace::train
