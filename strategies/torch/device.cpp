// Tensors of batches, and devices through LibTorch's generic interfaces.

#include "strategies/torch/device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "augment/plan/choices.h"
#include "millrace/error.h"
#include "models/native/ops.h"
#include "strategies/trainer/train_choices.h"

namespace millrace::train {

pipeline::Slice whole(const Batch& batch) { return {0, batch.count()}; }

// Torch has no view of constant memory; nothing writes through this one.

namespace {

/// Returns the form of a batch's samples. Throws UsageError if the model takes others.
SampleSpec sample_of(const Batch& batch, const InputForm& form) {
  SampleSpec sample = form.sample;
  if (form.any_size) sample.size = batch.size();
  const auto bytes = static_cast<std::int64_t>(sample.bytes());
  if (static_cast<std::int64_t>(batch.bytes()) != batch.count() * bytes)
    throw UsageError("model.name=" + form.model + " was built for " +
                     std::to_string(sample.channels) + "x" + std::to_string(sample.size.height) +
                     "x" + std::to_string(sample.size.width) + " " +
                     std::string(name_of(sample.dtype)) + " samples of " + std::to_string(bytes) +
                     " bytes, the batch has " + std::to_string(batch.bytes()) + " bytes for " +
                     std::to_string(batch.count()) + " samples");
  return sample;
}

torch::ScalarType element_of(const InputForm& form) {
  return form.sample.dtype == DType::u8 ? torch::kByte : torch::kFloat;
}

/// Returns `count` samples at the beginning of `elements` as N x channels x height x width, with
/// the strides of their layout.
torch::Tensor as_images(const torch::Tensor& elements, std::int64_t count, const SampleSpec& sample,
                        bool channels_last) {
  const std::int64_t channels = sample.channels;
  const std::int64_t height = sample.size.height;
  const std::int64_t width = sample.size.width;
  if (channels > 1 && sample.layout == Layout::hwc)
    return elements.view({count, height, width, channels}).permute({0, 3, 1, 2});
  torch::Tensor planes = elements.view({count, channels, height, width});
  if (channels != 1 || !channels_last) return planes;
  // A single plane is both planes and pixels. Strides that say so keep the first pooling fast; they
  // also make a convolution choose channels_last, whatever the weights' format.
  return planes.as_strided(planes.sizes(), {height * width, 1, width, 1});
}

/// Returns whether all convolutions make multiples of 8 channels.
bool fits_tensor_cores(const torch::nn::Module& model) {
  return std::ranges::all_of(model.parameters(), [](const torch::Tensor& weights) {
    return weights.dim() != 4 || weights.size(0) % 8 == 0;
  });
}

const std::byte* bytes_of(const void* memory) { return static_cast<const std::byte*>(memory); }

}  // namespace

torch::Tensor images_of(const Batch& batch, pipeline::Slice slice, const InputForm& form) {
  const SampleSpec sample = sample_of(batch, form);
  const auto bytes = static_cast<std::int64_t>(sample.bytes());
  auto* const pixels = const_cast<std::byte*>(batch.data() + slice.first * bytes);
  const auto elements = static_cast<std::int64_t>(sample.elements());
  return as_images(torch::from_blob(pixels, {slice.count * elements}, element_of(form)),
                   slice.count, sample, form.channels_last);
}

torch::Tensor labels_of(const Batch& batch, pipeline::Slice slice) {
  return torch::from_blob(const_cast<std::int64_t*>(batch.labels() + slice.first), {slice.count},
                          torch::kLong);
}

torch::Tensor targets_of(const Batch& batch, pipeline::Slice slice) {
  if (batch.classes() == 0) return labels_of(batch, slice);
  return torch::from_blob(const_cast<float*>(batch.probabilities() + slice.first * batch.classes()),
                          {slice.count, batch.classes()}, torch::kFloat);
}

torch::Tensor block_of(const Batch& batch) {
  const std::byte* const end =
      batch.classes() == 0 ? bytes_of(batch.labels() + batch.count())
                           : bytes_of(batch.probabilities() + batch.count() * batch.classes());
  return torch::from_blob(const_cast<std::byte*>(batch.data()), {end - batch.data()}, torch::kByte);
}

Samples samples_in(const torch::Tensor& block, const Batch& batch, const InputForm& form) {
  const std::int64_t count = batch.count();
  const SampleSpec sample = sample_of(batch, form);
  const torch::Tensor pixels =
      block.narrow(0, 0, count * static_cast<std::int64_t>(sample.bytes()));
  const bool labelled = batch.classes() == 0;
  const std::byte* const targets =
      labelled ? bytes_of(batch.labels()) : bytes_of(batch.probabilities());
  const std::int64_t begin = targets - batch.data();
  const torch::Tensor rows =
      block.narrow(0, begin, block.numel() - begin).view(labelled ? torch::kLong : torch::kFloat);
  return {as_images(pixels.view(element_of(form)), count, sample, form.channels_last),
          labelled ? rows : rows.view({count, batch.classes()})};
}

// Converts levels to normalised values on the device.

Normalization::Normalization(const Recipe& recipe, const InputForm& form, torch::Device device)
    : channels_last_(form.channels_last) {
  if (augment::normalize_of(recipe) == augment::Normalize::loader) return;
  const int channels = form.sample.channels;
  const std::vector<double>& mean = recipe.numbers("output.mean");
  const std::vector<double>& std = recipe.numbers("output.std");
  torch::Tensor tables = torch::empty({channels, 256}, torch::kFloat);
  auto cell = tables.accessor<float, 2>();
  for (int channel = 0; channel < channels; ++channel) {
    const auto of_channel = [&](const std::vector<double>& values) {
      return static_cast<float>(values.size() == 1 ? values[0]
                                                   : values[static_cast<std::size_t>(channel)]);
    };
    for (int level = 0; level < 256; ++level)
      cell[channel][level] =
          (static_cast<float>(level) / 255.0f - of_channel(mean)) / of_channel(std);
  }
  const std::string& amp = recipe.text("train.amp");
  // Native ops take f32 whatever train.amp says.
  if (amp != "off" && ops_of(recipe) != ModelOps::native)
    tables = tables.to(amp == "f16" ? torch::kHalf : torch::kBFloat16);
  tables_ = tables.to(device);
}

torch::Tensor Normalization::operator()(const torch::Tensor& images) const {
  if (!tables_.defined()) return images;
  return native::normalize(images, tables_, channels_last_);
}

// Reads the caching allocator's statistics.
namespace {

class CachedMemory final : public DeviceMemory {
 public:
  explicit CachedMemory(torch::Device device)
      : allocator_(*at::getDeviceAllocator(device.type())), index_(device.index()) {}
  void reset() override {
    allocator_.emptyCache();
    allocator_.resetPeakStats(index_);
  }
  std::uint64_t peak() const override {
    return static_cast<std::uint64_t>(allocator_.getDeviceStats(index_).allocated_bytes[kAll].peak);
  }
  std::uint64_t available() const override {
    const auto reserved = allocator_.getDeviceStats(index_).reserved_bytes[kAll].current;
    return allocator_.getMemoryInfo(index_).first + static_cast<std::uint64_t>(reserved);
  }

 private:
  static constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

  c10::DeviceAllocator& allocator_;
  c10::DeviceIndex index_;
};

}  // namespace

std::unique_ptr<DeviceMemory> make_device_memory(torch::Device device) {
  return std::make_unique<CachedMemory>(device);
}

// Lends untimed marks, and takes them back when they are dropped.

OwnedMark DeviceStreams::join() {
  OwnedMark mark = spare();
  place_join(*mark);
  return mark;
}

OwnedMark DeviceStreams::fence() {
  OwnedMark mark = spare();
  place_fence(*mark);
  return mark;
}

OwnedMark DeviceStreams::spare() {
  if (spares_->empty()) spares_->push_back(make_untimed());
  OwnedMark mark(spares_->back().release(), KeepSpare(spares_));
  spares_->pop_back();
  return mark;
}

// Streams and events on any device that has them. Compiled everywhere; only such a device can run
// it.
namespace {

class EventMark final : public DeviceMark {
 public:
  /// `timed`: the device records the time.
  EventMark(torch::DeviceType device, bool timed)
      : event_(device, timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT) {}
  /// Marks the work launched on `stream` so far. What waits for the work marked before still does.
  void record(const c10::Stream& stream) { event_.record(stream); }
  bool reached() override { return event_.query(); }
  void wait() override { event_.synchronize(); }
  const c10::Event& event() const { return event_; }

 private:
  c10::Event event_;
};

class C10Streams final : public DeviceStreams {
 public:
  explicit C10Streams(torch::Device device)
      : device_(device), guard_(device.type()), copies_(guard_.getStreamFromGlobalPool(device)) {}

  torch::Tensor copy(const torch::Tensor& host) override {
    torch::Tensor there;
    {
      const c10::StreamGuard guard(copies_);
      there = host.to(device_, /*non_blocking=*/true);
    }
    there.record_stream(work());  // blocks reuse of the memory until work is done with it
    return there;
  }
  void copy_into(torch::Tensor& there, const torch::Tensor& host, DeviceMark& read) override {
    const c10::StreamGuard guard(copies_);
    static_cast<EventMark&>(read).event().block(copies_);
    there.copy_(host, /*non_blocking=*/true);
  }
  void send_number(const torch::Tensor& host, torch::Tensor& there) override {
    there.copy_(host, /*non_blocking=*/true);
  }
  std::unique_ptr<DeviceMark> mark() override {
    auto mark = std::make_unique<EventMark>(device_.type(), /*timed=*/true);
    mark->record(work());
    return mark;
  }
  void mark_again(DeviceMark& mark) override { static_cast<EventMark&>(mark).record(work()); }
  base::Clock::Ticks time_of(DeviceMark& mark) override {
    // Measures from one mark to the next: milliseconds in single precision are coarse over hours.
    const auto& event = static_cast<const EventMark&>(mark).event();
    const double seconds = static_cast<const EventMark&>(*last_).event().elapsedTime(event) * 1e-3;
    last_at_ += static_cast<base::Clock::Ticks>(seconds / base::Clock::seconds_per_tick());
    last_ = &mark;
    return last_at_;
  }
  void set_clock() override {
    clock_ = mark();
    clock_->wait();
    last_at_ = base::Clock::now();
    last_ = clock_.get();
  }
  void on_side_stream(const std::function<void()>& work) override {
    if (!side_) side_ = guard_.getStreamFromGlobalPool(device_);
    const c10::Stream own = this->work();
    follow(*side_, own);
    {
      const c10::StreamGuard guard(*side_);
      work();
    }
    follow(own, *side_);
  }
  torch::Tensor host_number() override {
    return torch::empty({}, torch::TensorOptions().pinned_memory(true));
  }
  torch::Tensor to_host(const torch::Tensor& there) override {
    const torch::Tensor here =
        torch::empty(there.sizes(), there.options().device(torch::kCPU).pinned_memory(true));
    return here.copy_(there, /*non_blocking=*/true);
  }

 protected:
  std::unique_ptr<DeviceMark> make_untimed() override {
    return std::make_unique<EventMark>(device_.type(), /*timed=*/false);
  }
  void place_join(DeviceMark& mark) override {
    auto& copied = static_cast<EventMark&>(mark);
    copied.record(copies_);
    copied.event().block(work());
  }
  void place_fence(DeviceMark& mark) override { static_cast<EventMark&>(mark).record(work()); }

 private:
  /// Makes later work on `later` wait for the work launched on `earlier` so far.
  static void follow(const c10::Stream& later, const c10::Stream& earlier) {
    EventMark mark(earlier.device_type(), /*timed=*/false);
    mark.record(earlier);
    mark.event().block(later);
  }
  c10::Stream work() const { return guard_.getStream(device_); }

  torch::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream copies_;
  std::optional<c10::Stream> side_;    ///< stream of on_side_stream()
  std::unique_ptr<DeviceMark> clock_;  ///< mark of set_clock()
  const DeviceMark* last_ = nullptr;   ///< last mark with a known time
  base::Clock::Ticks last_at_ = 0;
};

}  // namespace

std::unique_ptr<DeviceStreams> make_device_streams(torch::Device device) {
  if (device.is_cpu()) return nullptr;
  return std::make_unique<C10Streams>(device);
}

// Times the parts of a step.

void StepMarks::place(DeviceStreams& streams, Point point) {
  std::unique_ptr<DeviceMark>& mark = marks_[static_cast<std::size_t>(point)];
  if (mark == nullptr)
    mark = streams.mark();
  else
    streams.mark_again(*mark);
  placed_[static_cast<std::size_t>(point)] = true;
}

FinishedStep StepMarks::read(DeviceStreams& streams, std::uint64_t step) {
  FinishedStep finished;
  finished.step = step;
  finished.begin = streams.time_of(at(Point::begin));
  const base::Clock::Ticks backward =
      placed(Point::backward) ? streams.time_of(at(Point::backward)) : finished.begin;
  const base::Clock::Ticks update =
      placed(Point::step) ? streams.time_of(at(Point::step)) : backward;
  finished.end = streams.time_of(at(Point::end));
  if (is_whole_graph_) finished.parts = DeviceParts{.graph = finished.end - finished.begin};
  if (!placed(Point::step)) return finished;
  DeviceParts parts;
  if (placed(Point::backward)) {
    parts.forward = backward - finished.begin;
    parts.backward = update - backward;
  } else {
    parts.graph = update - finished.begin;
  }
  parts.step = finished.end - update;
  finished.parts = parts;
  return finished;
}

StepMarks& MarkRing::next() {
  StepMarks& marks = steps_[at_];
  at_ = (at_ + 1) % steps_.size();
  marks.placed_ = {};
  marks.is_whole_graph_ = false;
  return marks;
}

void StagedNumbers::send(DeviceStreams& streams, double value, torch::Tensor& there) {
  torch::Tensor& place = places_[at_];
  at_ = (at_ + 1) % places_.size();
  if (!place.defined()) place = streams.host_number();
  *place.mutable_data_ptr<float>() = static_cast<float>(value);
  streams.send_number(place, there);
}

// Parses devices and sets process-wide switches of LibTorch.

int device_index(const std::string& device) {
  constexpr std::string_view kCuda = "cuda";
  if (device == "cpu") return -1;
  if (device == kCuda) return 0;
  int index = -1;
  const char* const begin = device.data() + std::min(device.size(), kCuda.size() + 1);
  const char* const end = device.data() + device.size();
  const auto [stop, error] = std::from_chars(begin, end, index);
  if (!device.starts_with("cuda:") || error != std::errc() || stop != end || index < 0 ||
      index > std::numeric_limits<c10::DeviceIndex>::max())
    throw UsageError("train.device=" + device + ": unknown device",
                     "use cpu, cuda, cuda:N or simulated");
  return index;
}

std::optional<CudaLibrary> load_cuda(const StrategyOptions& options) {
  const int index = device_index(options.device);
  if (index < 0) return {};
  const bool replicas = strategy_of(options.recipe) == StrategyKind::data_parallel;
  return CudaLibrary::load(
      "train.device=" + options.device, index,
      replicas ? static_cast<int>(options.recipe.integer("train.replicas")) : 1);
}

torch::Device torch_device(const std::string& device) {
  const int index = device_index(device);
  if (index < 0) return torch::kCPU;
  return torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
}

void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // glibc's maximum
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

bool wants_channels_last(const StrategyOptions& options, torch::Device device,
                         const torch::nn::Module& model) {
  const Recipe& recipe = options.recipe;
  const std::string& wanted = recipe.text("train.channels_last");
  if (wanted != "auto") return wanted == "on";
  if (ops_of(recipe) == ModelOps::native) return false;
  const bool pixels = options.sample.layout == Layout::hwc && options.sample.channels > 1;
  const bool tensor_cores = recipe.text("train.amp") != "off" ||
                            (recipe.text("train.tf32") != "off" && fits_tensor_cores(model));
  return device.is_cpu() || pixels || tensor_cores;
}

void choose_algorithms_by_time(bool on) { at::globalContext().setBenchmarkCuDNN(on); }

void require_determinism() {
  // cuBLAS reads this when it creates a handle; LibTorch refuses to multiply without it.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);  // nothing reads such memory
}

void allow_tf32(const std::string& what) {
  at::globalContext().setAllowTF32CuDNN(what != "off");
  at::globalContext().setAllowTF32CuBLAS(what == "on");
}

void prefer_channels_last(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : model.parameters()) {
    if (parameter.dim() != 4) continue;
    // Does not use contiguous(): with one channel it keeps strides that the gradients will not
    // have.
    const auto format = torch::MemoryFormat::ChannelsLast;
    torch::Tensor pixels =
        torch::empty(parameter.sizes(), parameter.options().memory_format(format));
    parameter.set_data(pixels.copy_(parameter));
  }
}

}  // namespace millrace::train
