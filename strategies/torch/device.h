// Batches as tensors, and the device that they are on.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/private_api.h"
#include "millrace/loader.h"
#include "pipeline/loader/slice.h"
#include "strategies/torch/cuda_library.h"
#include "strategies/trainer/device_accounting.h"
#include "strategies/trainer/strategy_options.h"

namespace millrace::train {

// Tensors that view a batch's slot, without copies (contract Zero copy). The batch must outlive
// them.

/// Returns the slice that holds the whole batch.
pipeline::Slice whole(const Batch& batch);

/// The form in which a model takes the samples of a batch.
struct InputForm {
  std::string model;  ///< its name, for messages
  SampleSpec sample;
  bool channels_last = false;  ///< the model's convolutions work on pixels
  bool any_size = false;       ///< samples have Batch::size(), and not sample.size
};

/// Returns N x channels x height x width images, f32 or u8; with layout hwc, channels are adjacent
/// in memory. Throws UsageError if the batch holds other samples.
torch::Tensor images_of(const Batch& batch, pipeline::Slice slice, const InputForm& form);
/// Returns N labels.
torch::Tensor labels_of(const Batch& batch, pipeline::Slice slice);
/// Returns the targets of the loss: labels, or the probabilities (N x classes) that ops made of
/// them.
torch::Tensor targets_of(const Batch& batch, pipeline::Slice slice);

/// A model's input on its device: images, and labels or probabilities.
struct Samples {
  torch::Tensor images, targets;
};

/// Returns the bytes of the batch's slot from its first pixel to the end of its targets, so that
/// one copy sends a batch.
torch::Tensor block_of(const Batch& batch);
/// Returns views of a copy of block_of(batch), on any device, as images_of() and targets_of()
/// return them of the batch. Throws what images_of() does.
Samples samples_in(const torch::Tensor& block, const Batch& batch, const InputForm& form);

// Normalisation on the device (output.normalize=device): converts levels 0..255 to the model's
// values there, so that a quarter of the bytes is sent.

/// Looks up (level / 255 - mean) / std, computed on the host, so that every device gives the bits
/// of augment/plan/store.h. One kernel writes the memory format that the model reads
/// and, in mixed precision, the element type that its first convolution or linear layer would
/// convert to.
class Normalization {
 public:
  Normalization(const Recipe& recipe, const InputForm& form, torch::Device device);

  /// Converts N x channels x height x width levels on the device. Returns f32 unchanged.
  torch::Tensor operator()(const torch::Tensor& images) const;

 private:
  torch::Tensor tables_;  ///< channels x 256; undefined for f32
  bool channels_last_ = false;
};

/// Returns the memory of any device except the CPU, as the caching allocator counts it.
std::unique_ptr<DeviceMemory> make_device_memory(torch::Device device);

/// A device's two streams: one for work, one for copies of batches from the host. Uses c10's
/// generic streams and events, so that no CUDA header is needed and tests can replace the device.
/// Marks of join() and fence() that were dropped are placed again, so that steady state creates
/// none. One thread uses the streams and their marks.
class DeviceStreams {
 public:
  virtual ~DeviceStreams() = default;

  /// Starts to copy `host`, which must stay unchanged until the mark of the next join() is reached.
  virtual torch::Tensor copy(const torch::Tensor& host) = 0;
  /// Copies likewise into memory of the caller's, once `read` is reached: a fence() behind the work
  /// that has read or allocated it last.
  virtual void copy_into(torch::Tensor& there, const torch::Tensor& host, DeviceMark& read) = 0;
  /// Copies a number of host_number() in the order of work. It must stay unchanged until a later
  /// mark is reached.
  virtual void send_number(const torch::Tensor& host, torch::Tensor& there) = 0;
  /// Makes later work wait for the copies so far. Returns a mark that is reached when these are
  /// done.
  OwnedMark join();
  /// Returns a mark that is reached when all work so far is done.
  virtual std::unique_ptr<DeviceMark> mark() = 0;
  /// Places a mark of mark() again, after all work so far. It must have been reached, and time_of()
  /// must have been asked for it and for a later one.
  virtual void mark_again(DeviceMark& mark) = 0;
  /// Returns the time at which the device reached a mark of mark(), on the host's clock. Ask for
  /// marks in the order in which they were placed, after they are reached. The last one asked for
  /// must stay as it is until the next.
  virtual base::Clock::Ticks time_of(DeviceMark& mark) = 0;
  /// Aligns the device's clock with the host's, waiting for the device. Call it before the first
  /// mark() and, because clocks drift, again from time to time while no mark is open.
  virtual void set_clock() = 0;
  /// Runs `work` with a side stream as the current one, always the same. The side stream waits for
  /// all earlier work, and later work waits for it. Its memory may be freed at any time: only
  /// `work` uses it again.
  virtual void on_side_stream(const std::function<void()>& work) = 0;
  /// Returns a number in host memory that the device can write asynchronously.
  virtual torch::Tensor host_number() = 0;
  /// Starts to copy to host memory, after all work so far. The copy is complete once a later
  /// fence() is reached.
  virtual torch::Tensor to_host(const torch::Tensor& there) = 0;
  /// Returns a mark as mark() does, whose time is not recorded.
  OwnedMark fence();

 protected:
  /// Returns a mark without a time that has been placed nowhere yet.
  virtual std::unique_ptr<DeviceMark> make_untimed() = 0;
  /// Does what join() says, with a new or a spare mark.
  virtual void place_join(DeviceMark& mark) = 0;
  /// Does what fence() says, with a new or a spare mark.
  virtual void place_fence(DeviceMark& mark) = 0;

 private:
  OwnedMark spare();

  std::shared_ptr<SpareMarks> spares_ = std::make_shared<SpareMarks>();  ///< of join() and fence()
};

/// The marks of a step: where the device begins it, where its parts meet, and where it ends.
class StepMarks {
 public:
  enum class Point { begin, backward, step, end };

  /// Places a mark. Call it in the order of Point; begin and end are required, and the others may
  /// be left out.
  void place(DeviceStreams& streams, Point point);
  bool placed(Point point) const { return placed_[static_cast<std::size_t>(point)]; }
  /// Declares that one graph is the whole step, the optimizer's part included.
  void set_whole_graph() { is_whole_graph_ = true; }
  bool reached() { return at(Point::end).reached(); }
  void wait() { at(Point::end).wait(); }
  /// Returns the step's times, once it has been reached. Parts are known where the mark between
  /// backward and step was placed; without one before backward, the first part is a graph.
  FinishedStep read(DeviceStreams& streams, std::uint64_t step);

 private:
  static constexpr std::size_t kPoints = 4;

  DeviceMark& at(Point point) { return *marks_[static_cast<std::size_t>(point)]; }

  std::array<std::unique_ptr<DeviceMark>, kPoints> marks_;  ///< made at their first use
  std::array<bool, kPoints> placed_{};
  bool is_whole_graph_ = false;
  friend class MarkRing;
};

/// Marks of the steps in flight, used in turn, so that steady state creates none. The step whose
/// times were read last keeps its marks, because the next one's are measured from there, and one
/// more step is being submitted: with `inflight` steps in flight there are inflight + 2 of them.
class MarkRing {
 public:
  explicit MarkRing(int inflight) : steps_(static_cast<std::size_t>(inflight) + 2) {}
  /// Returns the marks of the next step, with none placed.
  StepMarks& next();

 private:
  std::vector<StepMarks> steps_;
  std::size_t at_ = 0;
};

/// Sends a number per step to the device. A number's place in host memory is used again when the
/// step that has sent it is no longer in flight, as the marks of a MarkRing are.
class StagedNumbers {
 public:
  explicit StagedNumbers(int inflight) : places_(static_cast<std::size_t>(inflight) + 2) {}
  /// Sends `value` in the order of work.
  void send(DeviceStreams& streams, double value, torch::Tensor& there);

 private:
  std::vector<torch::Tensor> places_;  ///< made at their first use
  std::size_t at_ = 0;
};

/// Returns null for the CPU, which has no queue.
MILLRACE_PRIVATE_API std::unique_ptr<DeviceStreams> make_device_streams(torch::Device device);

// Maps train.device and its options to torch.

/// Returns the CUDA index of "cuda" or "cuda:N", and -1 for "cpu". Throws UsageError.
MILLRACE_PRIVATE_API int device_index(const std::string& device);
/// Loads the module for the options' device, or for all devices of its replicas. Empty for the CPU.
/// Throws DeviceError.
std::optional<CudaLibrary> load_cuda(const StrategyOptions& options);
MILLRACE_PRIVATE_API torch::Device torch_device(const std::string& device);

/// Keeps freed memory in the process, because every step allocates the tensors that the previous
/// step freed. If the allocator returned them to the kernel in between, LeNet's step would take
/// some 900 page faults; keeping them costs a few megabytes. Affects the whole process.
MILLRACE_PRIVATE_API void keep_freed_memory();

/// Converts the parameters to channels_last, which decides the memory format of the whole network.
/// oneDNN and the pooling kernels are faster on pixels than on planes: LeNet's step takes 15% less
/// on a Zen 5 core.
MILLRACE_PRIVATE_API void prefer_channels_last(torch::nn::Module& model);
/// Returns whether a model should use channels_last. `auto` chooses it on the CPU with LibTorch's
/// ops, and on CUDA where convolutions then run on tensor cores: in mixed precision, and in TF32 if
/// all of them make multiples of 8 channels. cuDNN's f32 kernels for other widths are slower on
/// pixels than on planes: LeNet's step takes 31% more on an H100.
bool wants_channels_last(const StrategyOptions& options, torch::Device device,
                         const torch::nn::Module& model);

/// Lets cuDNN time its algorithms for every new shape and take the fastest, instead of choosing by
/// rules. Affects the whole process.
void choose_algorithms_by_time(bool on);

/// Restricts LibTorch to algorithms that give the same bits in every run, and lets it fail where
/// there is none. Call it before the first use of cuBLAS. Affects the whole process.
void require_determinism();

/// Selects what CUDA may compute in TF32 (19 bits) instead of f32: nothing (off), convolutions
/// (conv, as in PyTorch), or also matrix products (on). Affects the whole process.
MILLRACE_PRIVATE_API void allow_tf32(const std::string& what);

}  // namespace millrace::train
