// Follows a device's queue, time, utilisation and memory.

#include "strategies/trainer/device_accounting.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <type_traits>
#include <utility>

namespace millrace::train {

void InFlightBatches::hold(Batch batch, std::vector<OwnedMark> until) {
  held_.push_back({std::move(batch), std::move(until)});
}

void InFlightBatches::give_back_read() {
  const auto read = [](const Held& held) {
    return std::all_of(held.until.begin(), held.until.end(),
                       [](const auto& mark) { return mark->reached(); });
  };
  while (!held_.empty() && read(held_.front())) held_.pop_front();
}

void InFlightBatches::keep_at_most(std::size_t most, measure::SpanClock& spans) {
  give_back_read();
  if (held_.size() > most) spans.enter(measure::Span::device_wait);
  keep_at_most(most);
}

void InFlightBatches::keep_at_most(std::size_t most) {
  give_back_read();
  while (held_.size() > most) {
    for (const auto& mark : held_.front().until) mark->wait();
    held_.pop_front();
  }
}

void StepQueue::finish_oldest() {
  const std::unique_ptr<QueuedStep> step = std::move(queued_.front());
  queued_.pop_front();
  finished_.push_back(step->finish());
}

void StepQueue::shrink_to(std::size_t most, measure::SpanClock& spans) {
  while (!queued_.empty() && queued_.front()->done()) finish_oldest();
  if (queued_.size() <= most) return;
  spans.enter(measure::Span::device_wait);
  while (queued_.size() > most) finish_oldest();
}

void StepQueue::make_room(measure::SpanClock& spans) {
  if (max_ == 0) return;
  shrink_to(max_ - 1, spans);
  if (!fed_) return;
  // Steps finish in order, so an empty queue has reached the end of the newest one.
  ++submissions_.steps;
  if (queued_.empty() || queued_.back()->done()) ++submissions_.starved;
}

void StepQueue::push(std::unique_ptr<QueuedStep> step, measure::SpanClock& spans) {
  queued_.push_back(std::move(step));
  fed_ = true;
  if (max_ == 0) drain(spans);
}

void StepQueue::drain(measure::SpanClock& spans) {
  shrink_to(0, spans);
  fed_ = false;  // the device is idle because the host has waited for it
}

std::vector<FinishedStep> StepQueue::take() {
  while (!queued_.empty() && queued_.front()->done()) finish_oldest();
  return std::exchange(finished_, {});
}

// Splits the device's time into work and gaps.

base::Clock::Ticks DeviceTime::gap_other() const {
  base::Clock::Ticks sum = -gap_load();
  for (const base::Clock::Ticks ticks : gaps) sum += ticks;
  return sum;
}

DeviceTimeline::DeviceTimeline(measure::SpanClock& spans) : spans_(spans), at_(spans.since()) {
  spans_.record_to(this);
}

void DeviceTimeline::step(base::Clock::Ticks begin, base::Clock::Ticks end, bool set_up) {
  const measure::SpanTicks before = time_.gaps;
  gap(begin);
  const base::Clock::Ticks from = std::max(begin, at_);
  const base::Clock::Ticks busy = std::max<base::Clock::Ticks>(0, end - from);
  time_.busy += busy;
  if (set_up) {
    time_.setup_busy += busy;
    for (std::size_t i = 0; i < before.size(); ++i)
      time_.setup_gaps[i] += time_.gaps[i] - before[i];
  }
  at_ = std::max(at_, end);
  forget();
}

void DeviceTimeline::parts(const DeviceParts& parts) {
  time_.parts += parts;
  ++(parts.graph > 0 ? time_.graph_steps : time_.parts_steps);
}

DeviceTime DeviceTimeline::until(base::Clock::Ticks end) {
  gap(end);
  return time_;
}

void DeviceTimeline::gap(base::Clock::Ticks end) {
  const auto attribute = [&](std::size_t span, base::Clock::Ticks left) {
    const base::Clock::Ticks to = std::min(left, end);
    if (to <= at_) return;
    time_.gaps[span] += to - at_;
    at_ = to;
  };
  for (const measure::SpanRecord& span : host_)
    attribute(static_cast<std::size_t>(span.span), span.end);
  attribute(static_cast<std::size_t>(spans_.current()), end);
}

void DeviceTimeline::forget() {
  while (!host_.empty() && host_.front().end <= at_) host_.pop_front();
}

// Loads NVML and samples a device's utilisation.

/// NVML's functions as used here; they return 0 for success.
struct UtilizationSampler::Nvml {
  /// Layout of nvmlUtilization_t.
  struct Rates {
    unsigned gpu;  ///< in percent
    unsigned memory;
  };

  int (*init)();
  int (*handle_by_bus_id)(const char*, void**);
  int (*rates)(void*, Rates*);

  /// Returns null if the library or a function is missing. Never unloads it.
  static std::unique_ptr<Nvml> load(const char* library) {
    void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return nullptr;
    auto nvml = std::make_unique<Nvml>();
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      return function != nullptr;
    };
    if (find(nvml->init, "nvmlInit_v2") &&
        find(nvml->handle_by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2") &&
        find(nvml->rates, "nvmlDeviceGetUtilizationRates") && nvml->init() == 0)
      return nvml;
    return nullptr;
  }
};

UtilizationSampler::UtilizationSampler(const std::string& bus_id, double interval_s,
                                       const char* library) {
  if (bus_id.empty()) return;
  nvml_ = Nvml::load(library);
  if (nvml_ == nullptr || nvml_->handle_by_bus_id(bus_id.c_str(), &device_) != 0) return;
  thread_ = std::thread([this, interval_s] { sample(interval_s); });
}

UtilizationSampler::~UtilizationSampler() { static_cast<void>(stop()); }

void UtilizationSampler::sample(double interval_s) {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    Nvml::Rates rates{};
    if (nvml_->rates(device_, &rates) == 0) {
      sum_.gpu += rates.gpu * 0.01;
      sum_.memory += rates.memory * 0.01;
      ++sum_.samples;
    }
    end_.wait_for(lock, std::chrono::duration<double>(interval_s), [this] { return stop_; });
  }
}

std::optional<Utilization> UtilizationSampler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  end_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (sum_.samples == 0) return std::nullopt;
  const auto count = static_cast<double>(sum_.samples);
  return Utilization{sum_.gpu / count, sum_.memory / count, sum_.samples};
}

// Extrapolates memory use linearly.

std::optional<std::int64_t> samples_that_fit(const MemoryUse& small, const MemoryUse& large,
                                             std::uint64_t available) {
  if (large.samples <= small.samples || large.bytes <= small.bytes) return std::nullopt;
  const double each = static_cast<double>(large.bytes - small.bytes) /
                      static_cast<double>(large.samples - small.samples);
  const double fixed = static_cast<double>(small.bytes) - each * static_cast<double>(small.samples);
  const double fit = (static_cast<double>(available) - fixed) / each;
  if (fit < 1) return std::nullopt;
  return static_cast<std::int64_t>(fit);
}

std::optional<std::int64_t> find_samples_that_fit(std::int64_t too_many, DeviceMemory& memory,
                                                  const std::function<void(std::int64_t)>& step) {
  const auto use_of = [&](std::int64_t samples) -> MemoryUse {
    memory.reset();
    step(samples);
    return {samples, memory.peak()};
  };
  constexpr std::int64_t kLeast = 2;  // batch normalisation needs two samples
  for (std::int64_t large = too_many / 4; large / 2 >= kLeast; large /= 2) {
    try {
      const MemoryUse small = use_of(large / 2);
      return samples_that_fit(small, use_of(large), memory.available());
    } catch (const std::exception&) {  // too large as well; the first error is the one to report
    }
  }
  return std::nullopt;
}

}  // namespace millrace::train
