// Streams and events on any device that has them. Compiled everywhere; only such a device can run
// it.
#include "strategies/torch/device_streams.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <utility>

namespace millrace::train {
namespace {

class EventMark final : public DeviceMark {
 public:
  /// Marks the work launched on `stream` so far. `timed`: the device records the time.
  EventMark(const c10::Stream& stream, bool timed)
      : event_(stream.device_type(),
               timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT) {
    event_.record(stream);
  }
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
  std::unique_ptr<DeviceMark> join() override {
    auto copied = std::make_unique<EventMark>(copies_, /*timed=*/false);
    copied->event().block(work());
    return copied;
  }
  std::unique_ptr<DeviceMark> mark() override {
    return std::make_unique<EventMark>(work(), /*timed=*/true);
  }
  base::Clock::Ticks time_of(std::unique_ptr<DeviceMark> mark) override {
    // Measures from one mark to the next: milliseconds in single precision are coarse over hours.
    const auto& event = static_cast<const EventMark&>(*mark).event();
    const double seconds = static_cast<const EventMark&>(*last_).event().elapsedTime(event) * 1e-3;
    last_at_ += static_cast<base::Clock::Ticks>(seconds / base::Clock::seconds_per_tick());
    last_ = std::move(mark);
    return last_at_;
  }
  void set_clock() override {
    last_ = mark();
    last_->wait();
    last_at_ = base::Clock::now();
  }
  void aside(const std::function<void()>& work) override {
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

 private:
  /// Makes later work on `later` wait for the work launched on `earlier` so far.
  static void follow(const c10::Stream& later, const c10::Stream& earlier) {
    EventMark(earlier, /*timed=*/false).event().block(later);
  }
  c10::Stream work() const { return guard_.getStream(device_); }

  torch::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream copies_;
  std::optional<c10::Stream> side_;   ///< stream of aside()
  std::unique_ptr<DeviceMark> last_;  ///< last mark with a known time
  base::Clock::Ticks last_at_ = 0;
};

}  // namespace

std::unique_ptr<DeviceStreams> make_device_streams(torch::Device device) {
  if (device.is_cpu()) return nullptr;
  return std::make_unique<C10Streams>(device);
}

}  // namespace millrace::train
