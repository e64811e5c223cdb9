// Registers the device's guard, memory and ops with LibTorch.
#include "tests/torch/private_device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace millrace::test {

PrivateDevice& PrivateDevice::get() {
  static auto* const device = new PrivateDevice;  // tensors of static storage may be freed later
  return *device;
}

void PrivateDevice::reset(unsigned ahead) {
  queues_.clear();
  ahead_ = ahead;
  current_ = 0;
  pooled_ = 0;
  events_ = 0;
  clock_ms_ = 0;
  captured_ = nullptr;
  free_.clear();
  log_.clear();
}

void PrivateDevice::launch(std::string what, Task run) {
  if (captured_ != nullptr)
    captured_->push_back(std::move(run));
  else
    queue(current_, {std::move(what), std::move(run), nullptr});
}

void PrivateDevice::spend(double ms) {
  launch("spend", [this, ms] { clock_ms_ += ms; });
}

std::vector<PrivateDevice::Task> PrivateDevice::capture(const Task& launches) {
  std::vector<Task> captured;
  captured_ = &captured;
  launches();
  captured_ = nullptr;
  return captured;
}

void PrivateDevice::replay(const std::vector<Task>& captured) {
  for (const Task& run : captured) launch("replay", run);
}

int PrivateDevice::count(const std::string& prefix) const {
  return static_cast<int>(std::ranges::count_if(
      log_, [&](const std::string& line) { return line.starts_with(prefix); }));
}

PrivateDevice::Place PrivateDevice::record(std::string name, c10::StreamId stream) {
  TORCH_CHECK(captured_ == nullptr, "an event is recorded in a capture");
  auto place = std::make_shared<Record>(Record{.name = std::move(name), .stream = stream});
  queue(stream, {"record " + place->name,
                 [this, place] {
                   place->reached = true;
                   place->at_ms = clock_ms_;
                 },
                 nullptr});
  return place;
}

void PrivateDevice::queue(c10::StreamId stream, Item item) {
  note(stream, "<<", item.what);
  queues_[stream].push_back(std::move(item));
  run_ahead();
}

void PrivateDevice::take(c10::StreamId stream) {
  const Item item = std::move(queues_[stream].front());
  queues_[stream].pop_front();
  note(stream, ">>", item.what);
  if (item.run) item.run();
}

void PrivateDevice::step(c10::StreamId stream) {
  const Place place = queues_[stream].front().waits_for;
  if (place && !place->reached)
    step(place->stream);
  else
    take(stream);
  run_ahead();
}

void PrivateDevice::run_ahead() {
  for (bool ran = true; ran;) {
    ran = false;
    for (auto& [stream, items] : queues_) {
      if ((ahead_ >> stream & 1) == 0) continue;
      while (!items.empty() && (!items.front().waits_for || items.front().waits_for->reached)) {
        take(stream);
        ran = true;
      }
    }
  }
}

void PrivateDevice::run_until(const Record& record) {
  while (!record.reached) step(record.stream);
}

void PrivateDevice::note(c10::StreamId stream, const char* verb, const std::string& what) {
  log_.push_back(std::to_string(stream) + " " + verb + " " + what);
}

PrivateDevice::Block& PrivateDevice::allocate(std::size_t size) {
  const auto fits = [&](const Block* block) {
    return block->size == size && block->stream == current_ &&
           std::ranges::all_of(block->ends, [](const Place& place) { return place->reached; });
  };
  const auto found = std::find_if(free_.rbegin(), free_.rend(), fits);
  if (found != free_.rend()) {
    Block& block = **found;
    free_.erase(std::next(found).base());
    block.ends.clear();
    log_.push_back("reuse m" + std::to_string(block.id));
    return block;
  }
  Block& block = blocks_.emplace_back();
  block.bytes = std::make_unique<std::byte[]>(size);
  std::memset(block.bytes.get(), 0x5a, size);
  block.size = size;
  block.stream = current_;
  block.id = static_cast<int>(blocks_.size());
  log_.push_back("allocate m" + std::to_string(block.id));
  return block;
}

void PrivateDevice::release(Block& block) {
  log_.push_back("free m" + std::to_string(block.id));
  for (const c10::StreamId reader : std::exchange(block.readers, {}))
    block.ends.push_back(record("end of m" + std::to_string(block.id), reader));
  free_.push_back(&block);
}

/// Streams and events.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return stream(its().current_); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    return stream(++its().pooled_);
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    return stream(std::exchange(its().current_, next.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    return its().queues_[stream.id()].empty();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    while (!queryStream(stream)) its().step(stream.id());
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    c10::getDeviceAllocator(type())->recordStream(memory, stream);
  }

  void record(void** handle, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*handle == nullptr) *handle = new Event{++its().events_, 0, nullptr};
    Event& event = of(*handle);
    event.last = its().record(
        "e" + std::to_string(event.id) + "." + std::to_string(++event.records), stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    const auto& place = of(event).last;
    its().queue(stream.id(), {"wait " + place->name, {}, place});
  }
  bool queryEvent(void* event) const override { return of(event).last->reached; }
  void synchronizeEvent(void* event) const override { its().run_until(*of(event).last); }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    // CUDA gives single precision.
    return static_cast<float>(of(to).last->at_ms - of(from).last->at_ms);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete &of(event); }

 private:
  using Event = PrivateDevice::Event;

  static PrivateDevice& its() { return PrivateDevice::get(); }
  static c10::Device device() { return PrivateDevice::device(); }
  static c10::Stream stream(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device(), id);
  }
  static Event& of(void* handle) { return *static_cast<Event*>(handle); }
};

/// The device's memory.
class Memory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    if (size == 0) return {nullptr, PrivateDevice::device()};
    Block& block = PrivateDevice::get().allocate(size);
    return {block.bytes.get(), &block, &release, PrivateDevice::device()};
  }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    default_copy_data(to, from, size);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& memory, c10::Stream stream) override {
    auto* const block = memory.cast_context<Block>(&release);
    if (block != nullptr && stream.id() != block->stream) block->readers.insert(stream.id());
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}

 private:
  using Block = PrivateDevice::Block;

  static void release(void* block) { PrivateDevice::get().release(*static_cast<Block*>(block)); }
};

namespace {

/// Host memory that the device copies to and from; a queued copy keeps it.
class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    auto* const bytes = new std::byte[std::max<std::size_t>(size, 1)];
    pinned().insert(bytes);
    return {bytes, bytes, &release, c10::kCPU};
  }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    default_copy_data(to, from, size);
  }
  static bool has(const void* memory) { return pinned().contains(memory); }

 private:
  static std::set<const void*>& pinned() {
    static auto* const all = new std::set<const void*>;
    return *all;
  }
  static void release(void* memory) {
    pinned().erase(memory);
    delete[] static_cast<std::byte*>(memory);
  }
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static PinnedMemory memory;
    return &memory;
  }
  bool isPinnedPtr(const void* memory) const override { return PinnedMemory::has(memory); }
};

constexpr c10::DispatchKeySet kKey(c10::DispatchKey::PrivateUse1);

c10::Allocator* memory() { return c10::GetAllocator(c10::kPrivateUse1); }

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, memory(), kKey, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, memory(), kKey,
                                           c10::dtype_or_default(type));
}

/// Returns the same elements as a tensor of the host. It keeps a host's memory, and no device's.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor.detach();
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  PrivateDevice& device = PrivateDevice::get();
  device.launch("copy", [source = on_host(from), place = on_host(to)] {
    const at::NoGradGuard no_grad;
    place.copy_(source);
  });
  if (!non_blocking) {
    const Guard guard;
    guard.synchronizeStream(guard.getStream(PrivateDevice::device()));
  }
  return to;
}

void record_stream(at::Tensor& tensor, at::Stream stream) {
  c10::getDeviceAllocator(c10::kPrivateUse1)->recordStream(tensor.storage().data_ptr(), stream);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, ops) {
  ops.impl("empty.memory_format", &empty);
  ops.impl("empty_strided", &empty_strided);
  ops.impl("as_strided", &at::native::as_strided_tensorimpl);
  ops.impl("view", &at::native::view);
  ops.impl("_copy_from", &copy_from);
  ops.impl("record_stream", &record_stream);
}

const bool registered = [] {
  static Memory device_memory;
  static Hooks hooks;
  c10::register_privateuse1_backend("queued");
  c10::SetAllocator(c10::kPrivateUse1, &device_memory);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace
}  // namespace millrace::test
